"""Programs that train."""

from startup.onednn import choose_onednn

choose_onednn()  # before any program imports TensorFlow
