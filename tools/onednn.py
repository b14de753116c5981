"""The choice of oneDNN, which TensorFlow reads from the environment when it is imported."""

import os
import re
import sys
from pathlib import Path

from absl import app, logging

VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
_CPU_INFO = Path("/proc/cpuinfo")


def choose_onednn():
    """Turns oneDNN on where it is faster and TensorFlow leaves it off, unless the user has decided, and logs it.

    Those are processors with AVX2 and without AVX-512. TensorFlow turns oneDNN on by itself on Linux for VNNI, AMX and
    AVX512_BF16 (tensorflow/core/util/port.cc, `DefaultOneDnnPolicy`). Call this before TensorFlow is imported; it
    imports neither TensorFlow nor keras_bert. The program logs what was chosen and why once its flags are parsed: as
    INFO if this changed anything, otherwise as DEBUG.
    """
    level, choice = logging.DEBUG, "TensorFlow's default, "
    if VARIABLE in os.environ:
        choice = f"{VARIABLE}={os.environ[VARIABLE]}, as set in the environment"
    elif "tensorflow" in sys.modules:
        choice += "because TensorFlow was imported before"
    elif not (features := _processor_features()):
        choice += "because the processor's features are unknown"
    elif "avx2" not in features or any(name.startswith(("avx512", "avx_vnni", "amx_")) for name in features):
        choice += "which is right for this processor"
    else:
        os.environ[VARIABLE] = "1"
        level, choice = (
            logging.INFO,
            (
                "on, because it is faster on processors with AVX2 and without AVX-512, where TensorFlow leaves it off; "
                f"{VARIABLE}=0 in the environment turns it off"
            ),
        )
    app.call_after_init(lambda: logging.log(level, "oneDNN: %s", choice))


def _processor_features():
    try:
        found = re.search(r"^flags\s*:(.*)", _CPU_INFO.read_text("utf-8", "replace"), re.MULTILINE)
    except OSError:
        return []
    return found[1].split() if found else []
