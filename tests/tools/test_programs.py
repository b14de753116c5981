import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path.stem for path in (ROOT / "tools").glob("*.py") if "app.run(main)" in path.read_text("utf-8"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_shows_a_command(name):
    assert f"python -m tools.{name}" in importlib.import_module(f"tools.{name}").__doc__


@pytest.mark.slow
def test_help_does_not_import_tensorflow():
    imports = ", ".join(f"tools.{name}" for name in PROGRAMS)
    code = f"import sys, {imports}; assert not {{'tensorflow', 'keras'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
