"""Run by IPython before each guide, so that the site shows the output of the guide and no logs."""

import subprocess
import sys

from IPython import get_ipython


def bash(line, cell):
    """Runs commands like IPython's own `%%bash`, but prints their output at once: MyST-NB would break it into lines."""
    run = subprocess.run(["bash", "-ec", cell], capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr[-5000:])
    print(run.stdout, end="")


get_ipython().register_magic_function(bash, "cell")
sys.ps1 = ""  # otherwise TensorFlow takes the kernel for a terminal, and prints its log to stdout
