import os
import subprocess
import sys
from pathlib import Path

import pytest
from absl import app

from tools import onednn

ROOT = Path(__file__).parents[2]
CPU_INFO = "processor\t: 0\nmodel name\t: x\nflags\t\t: fpu sse4_2 {}\nbugs\t\t:\n\nprocessor\t: 1\n"


@pytest.fixture
def choose(tmp_path, monkeypatch):
    """Chooses for a processor in an environment; returns the level and text of the log, and the variable."""
    monkeypatch.setenv(onednn.VARIABLE, "restored at the end")
    monkeypatch.setattr(onednn, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(app, "call_after_init", lambda callback: callback())
    logged = []
    monkeypatch.setattr(onednn.logging, "log", lambda level, message, *values: logged.append((level, message % values)))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)

    def choose(cpu_info, variable=None):
        os.environ.pop(onednn.VARIABLE)
        if variable is not None:
            os.environ[onednn.VARIABLE] = variable
        if cpu_info is not None:
            (tmp_path / "cpuinfo").write_text(cpu_info)
        onednn.choose_onednn()
        return *logged.pop(), os.environ.get(onednn.VARIABLE)

    return choose


def test_turns_onednn_on_for_avx2_alone(choose):
    level, message, variable = choose(CPU_INFO.format("avx avx2 fma"))
    assert (level, variable) == (onednn.logging.INFO, "1")
    assert message.startswith("oneDNN: on, because") and "TF_ENABLE_ONEDNN_OPTS=0" in message


@pytest.mark.parametrize(
    ("cpu_info", "reason"),
    [
        (CPU_INFO.format("avx"), "right for this processor"),
        (CPU_INFO.format("avx avx2 avx512f avx512_vnni"), "right for this processor"),
        (CPU_INFO.format("avx avx2 avx_vnni"), "right for this processor"),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_leaves_other_processors_to_tensorflow(choose, cpu_info, reason):
    level, message, variable = choose(cpu_info)
    assert (level, variable) == (onednn.logging.DEBUG, None)
    assert message.startswith("oneDNN: TensorFlow's default") and reason in message


@pytest.mark.parametrize("variable", ["0", "1", ""])
def test_keeps_what_the_user_has_set(choose, variable):
    message = f"oneDNN: TF_ENABLE_ONEDNN_OPTS={variable}, as set in the environment"
    assert choose(CPU_INFO.format("avx2"), variable) == (onednn.logging.DEBUG, message, variable)


def test_changes_nothing_after_the_import_of_tensorflow(choose, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", os)
    level, message, variable = choose(CPU_INFO.format("avx2"))
    assert (level, variable) == (onednn.logging.DEBUG, None)
    assert "imported before" in message


@pytest.mark.parametrize("package", ["tools", pytest.param("tasks.classify", marks=pytest.mark.slow)])
def test_programs_choose_before_they_import_tensorflow_and_log_it_once(package):
    code = (
        f"import sys; import {package.partition('.')[0]}; assert 'tensorflow' not in sys.modules; import {package}; "
        "sys.argv.append('--verbosity=1'); from absl import app; app.run(lambda argv: None)"
    )
    environment = {**os.environ, onednn.VARIABLE: "0"}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert run.stderr.count("oneDNN: TF_ENABLE_ONEDNN_OPTS=0, as set in the environment") == 1
