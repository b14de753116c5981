"""Fine-tunes BERT to answer questions, on SQuAD or files like it; evaluates it, answers files, exports a SavedModel.

    python -m tasks.squad --version=1.1 --train_file=train-v1.1.json --eval_file=dev-v1.1.json \\
        --init_checkpoint=uncased_L-12_H-768_A-12 --run_dir=runs/squad

--mode says what to do, in any combination: train, eval, predict, export. What comes of it lies in --run_dir:
results.json, evaluation.json, log.jsonl, training_curve.png, saved_model/1/, and predictions.json,
nbest_predictions.json and null_odds.json for the official scripts, in evaluation_eval/ and predictions/predict/. A run
that was interrupted goes on where it stopped when the same command is given again.
"""

from absl import app, flags

import tasks.flags


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    tasks.flags.define_fine_tuning_flags(max_seq_length=384, has_dropout=False)
    flags.adopt_module_key_flags(tasks.flags)  # or --help would leave them out
    flags.DEFINE_enum("version", None, ["1.1", "2.0"], "Of SQuAD; 2.0 has impossible questions.", required=True)
    flags.DEFINE_string("train_file", None, "SQuAD's JSON, to train on.")
    flags.DEFINE_string("eval_file", None, "SQuAD's JSON, to choose the best model by and to evaluate on.")
    flags.DEFINE_string("predict_file", None, "SQuAD's JSON; answers in it are not looked at.")
    flags.DEFINE_integer("doc_stride", 128, "Tokens from one window of a context to the next.", lower_bound=1)
    flags.DEFINE_integer("max_query_length", 64, "Most tokens of a question; longer ones are cut off.", lower_bound=1)
    flags.DEFINE_integer("n_best_size", 20, "Starts and ends of a window to look at, answers to keep.", lower_bound=1)
    flags.DEFINE_integer("max_answer_length", 30, "Most tokens of an answer.", lower_bound=1)
    flags.DEFINE_float(
        "null_score_diff_threshold",
        None,
        "A question is impossible where null odds are above it; default: what is best on --eval_file, or 0.",
    )


def question_answering(values):
    """The task with the data that the modes need.

    Args:
        values: the flags' values.

    Returns:
        `tasks.question_answering.QuestionAnswering`.

    Raises:
        FileNotFoundError: if a file is missing.
    """
    from keras_bert.data.bad_rows import BadRows
    from keras_bert.data.squad import read_squad
    from tasks.question_answering import QuestionAnswering

    bad_rows = BadRows(skip=values.skip_bad_rows)
    labelled = {"train", "eval"} & set(values.mode)

    def read(path, wanted, to_train=False):
        return read_squad(path, values.version, to_train, bad_rows) if wanted and path is not None else None

    evaluation = read(values.eval_file, labelled)
    prediction = read(values.predict_file, "predict" in values.mode)
    return QuestionAnswering(
        values.version,
        values.doc_stride,
        values.max_query_length,
        values.n_best_size,
        values.max_answer_length,
        values.null_score_diff_threshold,
        train=read(values.train_file, "train" in values.mode, to_train=True),
        evaluation={} if evaluation is None else {"eval": evaluation},
        prediction={} if prediction is None else {"predict": prediction},
        bad_rows=bad_rows,
    )


def main(argv):
    """Flags to keyword arguments."""
    tasks.flags.run_fine_tuning("tasks.squad", question_answering, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
