"""Makes a student for distillation: some layers of a teacher, and the wordpieces that a corpus needs.

    python -m tools.make_student --teacher=all_minilm_l6_v2 --layers=0,4,5 --text_files='corpus/*.txt' \\
        --vocab_size=24000 --output=student

The output is a checkpoint folder, whose text is tokenized as the teacher's where all its wordpieces are kept. With
--keep_first=N, wordpieces with an id below N are kept even if the text does not use them: published vocabularies are
sorted by frequency. tasks.distill trains the student.
"""

from absl import app, flags

from tools.program import flag_definer, run_program


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("string", "teacher", None, "Name of a preset, hf://owner/name, or path of a checkpoint.", required=True)
    define("string", "output", None, "Folder to write; it must not exist.", required=True)
    define("list", "layers", None, "The teacher's layers to keep, from 0, comma-separated. Default: all.")
    define("list", "text_files", None, "Text files or patterns, to choose wordpieces by. Default: keep all.")
    define("integer", "vocab_size", None, "Number of wordpieces to keep. Default: all that occur.", lower_bound=1)
    define("integer", "min_count", 1, "Minimum frequency of a wordpiece in the text.", lower_bound=1)
    define("integer", "keep_first", 0, "Ids below which wordpieces need not occur in the text.", lower_bound=0)
    define("enum", "dtype", "float32", ("float32", "bfloat16", "int8"), "Type of the stored weights.")


def run(values):
    """Writes the student."""
    from keras_bert.data.formats.text_lines import decode_line, numbered_lines
    from keras_bert.io.remote_paths import matching_files
    from keras_bert.models.student import make_student

    texts = None
    if values.text_files:
        files = matching_files(values.text_files)
        texts = (decode_line(line) for file in files for _, line in numbered_lines(file))
    folder = make_student(
        values.teacher,
        values.output,
        None if values.layers is None else [int(layer) for layer in values.layers],
        texts,
        **{name: values[name].value for name in ("vocab_size", "min_count", "keep_first", "dtype")},
    )
    print(f"wrote {folder}")


def main(argv):
    """Runs the program."""
    run_program("make_student", run, argv, "give --teacher and --output")


if __name__ == "__main__":
    define_flags()
    app.run(main)
