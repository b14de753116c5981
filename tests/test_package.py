import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import keras_bert
import keras_bert.training
from tests.toys import toy_classifier, toy_reviews

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "keras_bert").rglob("*.py"))
# Functions with more than eight parameters, and why.
MANY_PARAMETERS = {
    "encoder.py:__init__": "the names in bert_config.json",
    "head.py:compile": "the signature of keras.Model.compile",
    "head.py:fit": "the signature of keras.Model.fit",
    "optimizer.py:__init__": "the signature of keras.optimizers.AdamW",
}


@pytest.mark.parametrize(
    ("module", "unknown", "first"),
    [(keras_bert, "BertClasifier", "BertAdamW"), (keras_bert.training, "Trianer", "Cluster")],
)
def test_public_names_exist_and_are_listed_in_the_error_for_an_unknown_name(module, unknown, first):
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=rf"no attribute '{unknown}'; its public names are \['{first}'"):
        getattr(module, unknown)


@pytest.mark.slow
def test_a_new_process_loads_a_saved_model(tmp_path):
    classifier = toy_classifier()
    classifier.compile(keras_bert.BertAdamW(keras_bert.WarmupSchedule(1e-3, 10)))
    classifier.fit(*toy_reviews(8), verbose=0)
    classifier.save(tmp_path / "classifier.keras")
    program = (
        "import keras, keras_bert, sys; model = keras.saving.load_model(sys.argv[1]); "
        "print(model.predict(['good', 'bad'], verbose=0).tolist(), int(model.optimizer.iterations))"
    )
    command = [sys.executable, "-c", program, tmp_path / "classifier.keras"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == f"{classifier.predict(['good', 'bad'], verbose=0).tolist()} 1"


@pytest.mark.slow
def test_the_installed_package_contains_all_modules_and_presets(tmp_path):
    program = [sys.executable, "-c", "from setuptools import setup; setup()", "--quiet"]
    steps = ["egg_info", f"--egg-base={tmp_path}", "build_py", f"--build-lib={tmp_path / 'installed'}"]
    subprocess.run([*program, *steps], cwd=ROOT, check=True, capture_output=True)
    installed, source = tmp_path / "installed" / "keras_bert", ROOT / "keras_bert"
    files = {
        path.relative_to(source) for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    assert len([path for path in files if path.parts[0] == "presets"]) >= 6
    assert {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()} == files


def test_no_two_modules_have_the_same_name():
    stems = Counter(path.stem for path in MODULES if path.stem != "__init__")
    assert [stem for stem, count in stems.items() if count > 1] == []


def _imports(node, in_function=False):
    """Yields each import of a module as the modules it may name, and whether a function does it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            package = [child.module] if isinstance(child, ast.ImportFrom) else []
            yield from (({*package, ".".join([*package, alias.name])}, in_function) for alias in child.names)
        elif not isinstance(child, ast.expr) and getattr(getattr(child, "test", None), "id", None) != "TYPE_CHECKING":
            yield from _imports(child, in_function or isinstance(child, ast.FunctionDef))


def test_functions_import_modules_of_the_package_only_to_keep_tensorflow_out():
    imports, needing = {}, set()  # needing: modules that import TensorFlow at module level, also through others
    for path in MODULES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        imports[name] = list(_imports(ast.parse(path.read_text("utf-8"))))

    def needs(names):
        return any(name in needing or name.startswith("tensorflow") for name in names)

    while more := {m for m in imports if any(needs(names) for names, local in imports[m] if not local)} - needing:
        needing |= more
    local = [(m, names) for m in imports for names, local in imports[m] if local and "keras_bert" in min(names)]
    assert local and [(m, names) for m, names in local if m in needing or not needs(names)] == []


def test_functions_have_at_most_eight_parameters():
    found = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                arguments = node.args
                parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                if len([each for each in parameters if each.arg not in ("self", "cls")]) > 8:
                    found.add(f"{path.name}:{node.name}")
    assert found == set(MANY_PARAMETERS)
