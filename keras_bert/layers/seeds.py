"""Seeds for the parts of a model, derived from a single seed."""

import zlib
from typing import overload


@overload
def derive_seed(seed: int, name: str) -> int: ...
@overload
def derive_seed(seed: None, name: str) -> None: ...
@overload
def derive_seed(seed: int | None, name: str) -> int | None: ...
def derive_seed(seed: int | None, name: str) -> int | None:
    """Returns a seed for a part of a model, different for each name; None if `seed` is None, for a random one.

    Two weights with the same seed would start with identical values.
    """
    if seed is None:
        return None
    return zlib.crc32(f"{int(seed)}/{name}".encode()) & 0x7FFFFFFF
