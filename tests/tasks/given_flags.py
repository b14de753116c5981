"""A program's flags, some of them given, without a command line."""

from types import SimpleNamespace


class GivenFlags:
    """What `absl.flags.FlagValues` has that programs ask for: values, and whether they were given.

    Args:
        defaults: dict of flag to value.
        **given: the flags given.
    """

    def __init__(self, defaults, **given):
        self.__dict__.update({**defaults, **given})
        self._given = set(given)

    def __getitem__(self, name):
        return SimpleNamespace(value=getattr(self, name), present=name in self._given)
