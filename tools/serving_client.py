"""Asks a model on a server of TensorFlow Serving, by gRPC or REST; needs nothing of the class it was exported from.

    python -m tools.serving_client --server=grpc://localhost:8500 --model=reviews --text="a fine film" --text="dull"
    python -m tools.serving_client --server=http://localhost:8501 --model=answers --question="Who?" --context="I did."
    python -m tools.serving_client --server=http://localhost:8501 --model=choices --prompt="He" --choice=is --choice=are
    python -m tools.serving_client --server=grpc://localhost:8500 --model=reviews --input=reviews.jsonl --output=a.jsonl
    python -m tools.serving_client --server=http://localhost:8501 --model=reviews --describe

Answers are JSON Lines with a value for every output of the signature, a row for each of the request. A row of --input
is an object with a value for every input of the signature, and others, which are not sent; bytes that are no text stand
as {"b64": "their base64"}. Each of its answers begins with `line`, where its row stands in the input, and the output
gets its name when it is complete.

Connections are neither encrypted nor authenticated, and go through no proxy.
"""

import sys

from absl import app, flags

_TEXTS = ("text", "text_a", "text_b", "words", "question", "context", "prompt")
_OF_INPUT = ("batch_size", "skip_bad_rows")  # flags that say how --input is read
_OF_ANSWERS = ("signature", "output", "overwrite")  # flags that say which answers there are and where they go


def inputs_of_flags(values):
    """The rows that are given by flags.

    Args:
        values: the flags.

    Returns:
        dict of input name to list; empty if there are none.
    """
    inputs = {name: getattr(values, name) for name in _TEXTS if getattr(values, name)}
    if values.choice:
        inputs["choices"] = [values.choice]
    # What stands on a command line may be any bytes.
    return {name: _bytes_of(rows) for name, rows in inputs.items()}


def _bytes_of(rows):
    return [_bytes_of(row) if isinstance(row, list) else row.encode("utf-8", "surrogateescape") for row in rows]


def read_batches(path, specs, batch_size, bad_rows):
    """The rows of a file, in batches.

    Args:
        path: str, a JSON Lines file.
        specs: dict of input name to `Tensor`.
        batch_size: int.
        bad_rows: a `BadRows`, told of rows that the signature does not take.

    Returns:
        Iterator of `(list of the rows' lines, {input name: list of rows})`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file has no rows.
        BadRowError: on a bad row, unless `bad_rows` skips it.
    """
    from keras_bert.data.formats.json_lines import read_values
    from tools.serving_clients.signature import fit_inputs

    lines, rows = [], []
    for line, values in read_values(path, list(specs), bad_rows):
        try:
            fit_inputs({name: [value] for name, value in zip(specs, values, strict=True)}, specs)
        except ValueError as error:
            bad_rows.report(path, line, str(error))
            continue
        lines.append(line)
        rows.append(values)
        if len(rows) == batch_size:
            yield lines, dict(zip(specs, map(list, zip(*rows, strict=True)), strict=True))
            lines, rows = [], []
    if rows:
        yield lines, dict(zip(specs, map(list, zip(*rows, strict=True)), strict=True))


def rows_of(answers, outputs, number):
    """The answers, row by row.

    Args:
        answers: dict of output name to list.
        outputs: list of str, the outputs in order.
        number: int. How many rows were asked.

    Returns:
        list of lists.

    Raises:
        ValueError: if an output has not a row for each of the request.
    """
    for name in outputs:
        if not isinstance(answers[name], list) or len(answers[name]) != number:
            raise ValueError(f"the output {name} has not a row for each of the {number} that were asked")
    return [list(row) for row in zip(*(answers[name] for name in outputs), strict=True)]


def describe(client):
    """What a server says of a model.

    Args:
        client: a `ServingClient`.

    Returns:
        list of str, lines.
    """
    lines = []
    for version in client.versions():
        lines.append(f"{client.model}, version {version.number}: {version.state} {version.message}".rstrip())
    for name, signature in client.signatures().items():
        lines.append(f"signature {name}")
        for kind, tensors in (("takes", signature.inputs), ("gives", signature.outputs)):
            lines += [f"  {kind} {tensor}: {spec}" for tensor, spec in tensors.items()]
    return lines


def answer_file(client, values):
    """Writes the answers to every row of a file; says on standard error how many they were."""
    from keras_bert.io.row_errors import BadRows, plural
    from tools.prediction_files import open_table
    from tools.serving_clients.client import ServingError

    signature, bad_rows, written = client.signature(values.signature), BadRows(skip=values.skip_bad_rows), 0
    outputs = list(signature.outputs)
    source = "/dev/stdin" if values.input == "-" else values.input
    with open_table(values.output, "jsonl", ["line", *outputs]) as write:
        for lines, inputs in read_batches(source, signature.inputs, values.batch_size, bad_rows):
            try:
                answers = client.predict(inputs, values.signature)
            except ServingError as error:
                raise ServingError(f"{values.input}, lines {lines[0]} to {lines[-1]}: {error}") from None
            for line, row in zip(lines, rows_of(answers, outputs, len(lines)), strict=True):
                write([line, *row])
            written += len(lines)
    skipped = f"; {plural(bad_rows.count, 'bad row')} skipped" if bad_rows.count else ""
    print(f"{plural(written, 'answer')} written to {values.output}{skipped}", file=sys.stderr)


def run(values, inputs):
    """Asks the server, and prints or writes what it says."""
    from tools.output_file import check_is_no_input, check_output
    from tools.prediction_files import open_table
    from tools.serving_clients.opening import open_client

    if values.output != "-":
        check_output(values.output, values.overwrite)
        if values.input not in (None, "-"):
            check_is_no_input(values.output, [values.input])
    version = values.version and (int(values.version) if values.version.isdecimal() else values.version)
    with open_client(values.server, values.model, version, values.timeout_seconds) as client:
        if values.describe:
            print("\n".join(describe(client)))
        elif values.input is not None:
            answer_file(client, values)
        else:
            answers = client.predict(inputs, values.signature)
            with open_table(values.output, "jsonl", list(answers)) as write:
                for row in rows_of(answers, list(answers), len(next(iter(inputs.values())))):
                    write(row)


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    define("string", "server", None, "grpc://host:port or http://host:port of the server.", required=True)
    define("string", "model", None, "Name of the model on the server.", required=True)
    define("string", "version", None, "Number of the model's version, or its label; by default the newest.")
    define("string", "signature", "serving_default", "Name of the signature.")
    for name in _TEXTS:
        define("multi_string", name, [], f"The input {name} of a row; again for each further row.")
    define("multi_string", "choice", [], "One of the choices of the prompt; again for each further one.")
    define("string", "input", None, "JSON Lines file of rows; - is standard input.")
    define("string", "output", "-", "File of answers; - is standard output.")
    define("integer", "batch_size", 32, "Rows of --input in a request.", lower_bound=1)
    define("float", "timeout_seconds", 10.0, "How long to wait for each answer of the server.", lower_bound=0.001)
    define("bool", "describe", False, "Show the model's versions and signatures, and ask nothing.")
    define("bool", "skip_bad_rows", False, "Whether to count and pass over rows that the signature does not take.")
    define("bool", "overwrite", False, "Whether to replace an output that exists.")


def check_flags(values, inputs):
    """Raises absl's UsageError if flags do not go together.

    Args:
        values: the flags.
        inputs: dict as `inputs_of_flags` gives.
    """
    if [bool(inputs), values.input is not None, values.describe].count(True) != 1:
        raise app.UsageError("give texts by their flags, or --input, or --describe, and one of these alone")
    for name in _OF_INPUT if values.input is None else ():
        if values[name].present:
            raise app.UsageError(f"--{name} is for --input, and has no effect without it; leave it out")
    for name in _OF_ANSWERS if values.describe else ():
        if values[name].present:
            raise app.UsageError(f"--{name} is for answers, and --describe asks for none; leave it out")
    if values.overwrite and values.output == "-":
        raise app.UsageError("--overwrite is for --output, and has no effect without it; leave it out")


def main(argv):
    """Runs the program; what is wrong with flags, files or the server is said in one line."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; every text has its flag")
    values = flags.FLAGS
    inputs = inputs_of_flags(values)
    check_flags(values, inputs)

    from tools.serving_clients.client import ServingError

    try:
        run(values, inputs)
    except (OSError, ValueError, ServingError) as error:
        sys.exit(f"tools.serving_client: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
