"""Definition of flags and handling of errors, as in all tools."""

import dataclasses
import sys

from absl import app, flags, logging

flags.disclaim_key_flags()  # --help shows flags as those of the program that defines them


def flag_definer(values):
    """Returns a function that defines a flag: its kind, such as "string", and the arguments of absl's DEFINE_string."""
    return lambda kind, *arguments, **options: getattr(flags, f"DEFINE_{kind}")(
        *arguments, flag_values=values, **options
    )


def define_settings(define, settings_class, **flag_names):
    """Defines a flag for each setting of a class; `flag_names` has those that are not the setting's own name."""
    from keras_bert.settings import flag_definition, kinds

    for field in dataclasses.fields(settings_class):
        kind, arguments = flag_definition(field, kinds(settings_class)[field.name], field.default)
        bounds = {}
        if kind in ("integer", "float"):
            bounds = {"lower_bound": field.metadata["lower"], "upper_bound": field.metadata["upper"]}
        define(kind, flag_names.get(field.name, field.name), *arguments, **bounds)


def read_settings(values, settings_class, **flag_names):
    """Builds a dataclass of settings from its flags."""
    names = [field.name for field in dataclasses.fields(settings_class)]
    return settings_class(**{name: values[flag_names.get(name, name)].value for name in names})


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
