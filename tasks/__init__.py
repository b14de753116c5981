"""Programs that train."""

import tools  # noqa: F401  chooses oneDNN, before any program imports TensorFlow
