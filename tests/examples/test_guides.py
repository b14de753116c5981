"""Runs the guides as Python programs, each in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "examples" / "guides").glob("*.md"))


def make_program(guide):
    """Returns the cells of a guide as one program."""
    cells = re.findall(r"^```\{code-cell\}\n(.*?)^```$", guide.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert cells, guide
    program = ["import subprocess\n"]
    for cell in cells:
        magic, _, commands = cell.partition("\n")
        is_shell = magic == "%%bash"
        program.append(f"subprocess.run(['bash', '-ec', {commands!r}], check=True)\n" if is_shell else cell)
    return "".join(program)


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_guides_run(guide, minilm, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-c", make_program(guide)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, (run.stdout[-1000:], run.stderr[-3000:])
