"""Type aliases shared by the whole library."""

import os
from collections.abc import Mapping
from typing import Any

PathLike = str | os.PathLike[str]
# A tensor of whichever backend Keras runs on, or an array; Keras has no common class for them.
Tensor = Any
# Inputs of the encoder by name: token_ids, segment_ids, padding_mask, position_ids.
Inputs = Mapping[str, Tensor]
