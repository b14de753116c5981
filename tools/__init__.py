"""Programs that do not train."""

from tools.onednn import choose_onednn

choose_onednn()  # before any program imports TensorFlow
