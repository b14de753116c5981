"""Checks README.md and docs/ against the code: flags, names, links and paths."""

import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
from absl import flags

import keras_bert

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples" / "guides").glob("*.md")),
    *sorted(ROOT.glob("keras_bert/presets/*/README.md")),
]
# Options of other programs that the pages mention in prose or in configuration files.
FOREIGN_FLAGS = {
    "TensorFlow Serving": "allowed_batch_sizes allow_version_labels_for_unavailable_models batching_parameters_file "
    "enable_batching enable_model_warmup enable_per_model_batching_parameters file_system_poll_wait_seconds "
    "model_config_file model_config_file_poll_wait_seconds monitoring_config_file",
    "saved_model_cli and TensorBoard": "all dir logdir",
    "Apache Beam": "flink_job_server_jar spark",
    "Slurm, up to the first hyphen of a name": "cpus gpus job nodes ntasks open requeue signal time",
    "Docker, pip and absl": "mount rm no help",
    "google-research/bert": "data_dir do_eval do_predict do_train num_train_epochs num_train_steps output_dir "
    "task_name train_batch_size",
    "tests.mutations": "format number",
}
# Names of other libraries.
FOREIGN_NAMES = (
    "BertBackbone",
    "BertConfig",
    "BertForPreTraining",
    "BertMaskedLM",
    "BertModel",
    "BertNormalizer",
    "BertPreTokenizer",
    "BertProcessing",
    "BertTextClassifier",
    "BertTextClassifierPreprocessor",
)
PROGRAM_FOLDERS = ("tasks", "tools", "benchmarks", "experiments")


def get_flag_names(program):
    """Returns the names of a program's flags, including those that switch off a boolean."""
    before = set(flags.FLAGS)
    importlib.import_module(program).define_flags()
    names = set(flags.FLAGS) - before
    switches = {f"no{name}" for name in names if flags.FLAGS[name].boolean}
    for name in names:
        delattr(flags.FLAGS, name)
    return names | switches


def find_commands(page):
    """Yields a program of this repository and its arguments for each command in a page."""
    fence = r"^```(?:\w*|\{code-cell\}\n%%bash)\n(.*?)^```"
    for block in re.findall(fence, page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            command = re.match(rf"\s*python -m ((?:tests|{'|'.join(PROGRAM_FOLDERS)})\.\w+) (.*)", line)
            if command:
                yield command[1], shlex.split(command[2], comments=True)


@pytest.fixture(scope="module")
def program_flags():
    paths = [path for folder in PROGRAM_FOLDERS for path in (ROOT / folder).glob("*.py")]
    programs = [f"{path.parent.name}.{path.stem}" for path in paths if "define_flags()" in path.read_text("utf-8")]
    return {program: get_flag_names(program) for program in [*programs, "tests.sst2_end_to_end"]}


for_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@for_every_page
def test_flags_exist(page, program_flags):
    for program, arguments in find_commands(page):
        for argument in arguments[: arguments.index("--") if "--" in arguments else None]:
            if argument.startswith("--"):
                assert argument[2:].split("=")[0] in program_flags[program], (program, argument)
    known = set().union(*program_flags.values(), " ".join(FOREIGN_FLAGS.values()).split())
    text = re.sub(r"^```(?:yaml|bash)\n.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r" -- --.*|^    --\w+=gs://.*", "", text, flags=re.MULTILINE)  # options of Apache Beam
    assert set(re.findall(r"(?<![\w-])--([a-z]\w*)", text)) - known == set()


@for_every_page
def test_names_resolve(page):
    text = page.read_text("utf-8")
    for name in set(re.findall(rf"(?:keras_bert|{'|'.join(PROGRAM_FOLDERS)})(?:\.\w+)+", text)):
        if not re.search(r"\.(py|json|md|jsonl|pb|txt|png)$", name):
            pkgutil.resolve_name(name)
    for name in re.findall(r"\bBert[A-Z]\w+", text):
        assert name in keras_bert.__all__ or name in FOREIGN_NAMES, name


@for_every_page
def test_links_and_paths_exist(page):
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.*)", linked.read_text("utf-8"), re.MULTILINE) if anchor else []
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in slugs, target
    for path in re.findall(r"`((?:keras_bert|tests|tools|docs|examples|benchmarks|experiments)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
