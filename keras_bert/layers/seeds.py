"""Seeds for the parts of a layer, derived from the one seed that the caller gave."""

import zlib


def derive_seed(seed, name):
    """A seed for the part called `name`, different for every name and the same for the same pair.

    Two weights that share one seed would start with identical values, so each part needs its own.

    Args:
        seed: int or None. The seed of the whole; None means "draw one at random".
        name: str. The name of the part, unique within the whole.

    Returns:
        int in [0, 2**31), or None if `seed` is None.

    Example:

    >>> derive_seed(7, "query") != derive_seed(7, "output")
    True
    >>> derive_seed(None, "query") is None
    True
    """
    if seed is None:
        return None
    return zlib.crc32(f"{int(seed)}/{name}".encode()) & 0x7FFFFFFF
