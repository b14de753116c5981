"""Flags of a program, for calls of its functions in this process."""

from absl import flags


def parse_flags(program, *arguments, **options):
    """Returns the values of a program's flags; `options` are flags by name."""
    values = flags.FlagValues()
    program.define_flags(values)
    values([program.__name__, *map(str, arguments), *(f"--{name}={value}" for name, value in options.items())])
    return values
