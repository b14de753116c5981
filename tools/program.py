"""Definition of flags and handling of errors, as in all tools."""

import sys

from absl import app, flags, logging


def flag_definer(values):
    """Returns a function that defines a flag: its kind, such as "string", and the arguments of absl's DEFINE_string."""
    return lambda kind, *arguments, **options: getattr(flags, f"DEFINE_{kind}")(
        *arguments, flag_values=values, **options
    )


def run_program(name, run, argv, advice, errors=(OSError, ValueError)):
    """Runs a program with the parsed flags; the given errors are printed without a traceback."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; {advice}")
    try:
        run(flags.FLAGS)
    except errors as error:
        sys.exit(f"tools.{name}: {error}")


def hide_info_logs():
    """Hides messages such as the table of weights, unless --verbosity is given."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
