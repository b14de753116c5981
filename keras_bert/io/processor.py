"""The processor's features, and a warning that follows from them."""

import functools
import re
from pathlib import Path

import keras
from absl import logging

_CPU_INFO = Path("/proc/cpuinfo")
BFLOAT16_FEATURES = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # of x86-64, and of arm64


def processor_features() -> frozenset[str]:
    """Returns the features of the processor by their names in /proc/cpuinfo; none if they are unknown."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)", _CPU_INFO.read_text("utf-8", "replace"), re.MULTILINE)
    except OSError:
        return frozenset()
    return frozenset(found[1].split()) if found else frozenset()


@functools.cache
def warn_if_bfloat16_is_slow() -> None:
    """Logs a warning, once, on a processor known not to compute in bfloat16, without a GPU or TPU.

    Call it once variables exist: it asks the backend for its devices, after which they cannot be configured.
    """
    features = processor_features()
    if not features or features & BFLOAT16_FEATURES or keras.backend.backend() not in ("tensorflow", "jax"):
        return
    if all(device.startswith("cpu") for device in keras.distribution.list_devices()):
        logging.warning(
            "mixed_bfloat16 is slow on this processor, which has no instructions for bfloat16 (%s), and there is no "
            "GPU or TPU; float32 is faster here",
            ", ".join(sorted(BFLOAT16_FEATURES)),
        )
