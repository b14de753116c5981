"""Makes bert_mini_en: three layers of a sentence encoder with 24,000 wordpieces, distilled on raw text.

    python -m experiments.bert_mini_en --text_files='corpus/*.txt' --run_dir=runs/bert_mini_en

The text has one sentence per line, as tools.prepare_corpus writes it. Output: the folder bert_mini_en in --run_dir,
with weights in int8. Re-run the same command to resume an interrupted run.
"""

from pathlib import Path

from absl import app, flags

from experiments.programs import run_experiment

# Of twelve triples of layers that were tried, the one whose text vectors are closest to the teacher's before training.
LAYERS = (0, 4, 5)
VOCAB_SIZE = 24_000
# The vocabulary is sorted by frequency in Google's texts: its first words are kept, for texts unlike these.
KEEP_FIRST = 24_000
RECIPE = {
    "max_seq_length": 48,
    "precision": "mixed_bfloat16",
    "epochs": 1.0,
    "batch_size": 64,
    "learning_rate": 3e-4,
    "schedule": "linear",
    "evaluate_every": 500,
}


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_list("text_files", None, "Text files or patterns.", required=True, flag_values=values)
    flags.DEFINE_string("run_dir", None, "Folder for all outputs.", required=True, flag_values=values)
    flags.DEFINE_string("teacher", "all_minilm_l6_v2", "The sentence encoder.", flag_values=values)
    flags.DEFINE_integer("max_texts", 120_000, "Number of sentences to learn from.", 1, flag_values=values)
    flags.DEFINE_integer("eval_texts", 1000, "Number of sentences to evaluate on.", 1, flag_values=values)


def run(values):
    """Makes the student, trains it, and writes the folder, whose path is returned."""
    import keras_bert
    from keras_bert.data.formats.text_lines import read_text_lines
    from keras_bert.io.remote_paths import matching_files
    from keras_bert.io.row_errors import BadRows

    run_dir = Path(values.run_dir)
    student, output = run_dir / "student", run_dir / "bert_mini_en"
    if not student.exists():
        bad_rows = BadRows(skip=False)
        texts = (text for file in matching_files(values.text_files) for text in read_text_lines(file, bad_rows))
        keras_bert.make_student(values.teacher, student, LAYERS, texts, vocab_size=VOCAB_SIZE, keep_first=KEEP_FIRST)
    settings = keras_bert.DistillationSettings(
        teacher=values.teacher,
        text_files=tuple(values.text_files),
        max_texts=values.max_texts,
        eval_texts=values.eval_texts,
        replaced_words=0.15,  # novels lack many words of today
        vector_weight=1.0,
    )
    keras_bert.distill(settings, keras_bert.FineTuningRecipe(init_checkpoint=str(student), **RECIPE), run_dir / "run")
    embedder = keras_bert.BertTextEmbedder.from_checkpoint(run_dir / "run" / "model")  # without the pooler
    return embedder.save_checkpoint(output, dtype="int8")


def main(argv):
    """Runs the experiment."""
    run_experiment("experiments.bert_mini_en", run, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
