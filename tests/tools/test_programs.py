import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from absl import app, flags

from tests.tools.program_flags import parse_flags

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path.stem for path in (ROOT / "tools").glob("*.py") if "app.run(main)" in path.read_text("utf-8"))
REQUIRED_FLAGS = {
    "build_vocab": {"input": "FOLDER/in.txt"},
    "extract_features": {"checkpoint": "missing", "input": "FOLDER/in.txt"},
    "predict": {"saved_model": "FOLDER", "input": "FOLDER/in.txt"},
    "triviaqa_to_squad": {"input": "FOLDER/in.txt", "evidence_dir": "missing"},
}


def load_program(name):
    return importlib.import_module(f"tools.{name}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_shows_a_command_and_the_flags(name):
    program, values = load_program(name), flags.FlagValues()
    assert f"python -m tools.{name}" in program.__doc__
    if name != "data_service":  # defines its flags itself
        program.define_flags(values)
        assert len(values.get_key_flags_for_module(program.__name__)) == len(values)


@pytest.mark.slow
def test_importing_programs_does_not_import_tensorflow():
    imports = ", ".join(f"tools.{name}" for name in PROGRAMS)
    code = f"import sys, {imports}; assert not {{'tensorflow', 'keras'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", REQUIRED_FLAGS)
def test_existing_outputs_are_only_replaced_on_request(name, tmp_path, monkeypatch):
    for file in ("in.txt", "saved_model.pb", "old.txt"):
        (tmp_path / file).write_text("mine")
    options = {flag: value.replace("FOLDER", str(tmp_path)) for flag, value in REQUIRED_FLAGS[name].items()}
    program = load_program(name)
    monkeypatch.setattr(flags, "FLAGS", parse_flags(program, output=tmp_path / "old.txt", **options))
    monkeypatch.setattr(program, "hide_info_logs", lambda: None, raising=False)
    # Errors are printed in one line.
    message = rf"^tools.{name}: --output=[^\n]*old\.txt exists; give another name, or --overwrite to replace it$"
    with pytest.raises(SystemExit, match=message):
        program.main([name])
    assert (tmp_path / "old.txt").read_text() == "mine"
    with pytest.raises(app.UsageError, match="unexpected arguments"):
        program.main([name, "another"])
