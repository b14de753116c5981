"""Variables by their paths within a model, and arrays from a checkpoint into them."""

from keras_bert.weights.assignment_report import report_assignment


def relative_variables(model, prefix=""):
    """The weights of a model by their path below the model's own name.

    Args:
        model: a built Keras model.
        prefix: str. Put in front of every path.

    Returns:
        dict of str to Keras variable, in the order of creation. Optimizer slots, metrics and seed states are not in it.

    Example:

    >>> model = keras.Sequential([keras.layers.Dense(2, name="logits")], name="mine")
    >>> model.build((None, 3))
    >>> list(relative_variables(model, "head/"))
    ['head/logits/kernel', 'head/logits/bias']
    """
    return {prefix + weight.path.removeprefix(f"{model.name}/"): weight for weight in model.weights}


def assign_arrays(variables, checkpoint):
    """Puts a checkpoint's arrays into a model's variables, after checking that all of them fit.

    Args:
        variables: dict of path to Keras variable, as `variables_by_path` of a model gives.
        checkpoint: a `keras_bert.weights.checkpoint.Checkpoint`.

    Returns:
        An `AssignmentReport`: what was read, what stayed random, what in the file was not used.

    Raises:
        ValueError: if an array has another shape than its variable; nothing has been assigned then.
    """
    report = report_assignment(checkpoint, {path: tuple(variable.shape) for path, variable in variables.items()})
    for path in report.read:
        variables[path].assign(checkpoint.arrays[path])
    return report
