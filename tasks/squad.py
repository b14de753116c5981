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

# What a run's configuration says of how its questions are read and answered, by the flag that does.
OF_THE_TASK = {
    "doc_stride": "stride",
    "max_query_length": "max_query_length",
    "n_best_size": "n_best",
    "max_answer_length": "max_answer_length",
}
_VERSIONS = ("1.1", "2.0")  # `keras_bert.metrics.squad_scores.VERSIONS`, which is imported later


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    tasks.flags.define_fine_tuning_flags(max_seq_length=384, has_dropout=False)
    flags.adopt_module_key_flags(tasks.flags)  # or --help would leave them out
    flags.DEFINE_enum(
        "version", None, _VERSIONS, "Of SQuAD; 2.0 has impossible questions. Default: that of the run that is used."
    )
    flags.DEFINE_string("train_file", None, "SQuAD's JSON, to train on.")
    flags.DEFINE_string("eval_file", None, "SQuAD's JSON, to choose the best model by and to evaluate on.")
    flags.DEFINE_string("predict_file", None, "SQuAD's JSON, which needs no answers.")
    flags.DEFINE_integer("doc_stride", 128, "Tokens from one window of a context to the next.", lower_bound=1)
    flags.DEFINE_integer("max_query_length", 64, "Most tokens of a question; longer ones are cut off.", lower_bound=1)
    flags.DEFINE_integer("n_best_size", 20, "Starts and ends of a window to look at, answers to keep.", lower_bound=1)
    flags.DEFINE_integer("max_answer_length", 30, "Most tokens of an answer.", lower_bound=1)
    flags.DEFINE_float(
        "null_score_diff_threshold",
        None,
        "A question is impossible where null odds are above it; default: what is best on --eval_file, for predictions "
        "and exports what was best when the model was trained, or 0.",
    )


def question_answering(values):
    """The task with the data that the modes need.

    Args:
        values: the flags' values.

    Returns:
        `keras_bert.finetuning.question_answering_task.QuestionAnswering`.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the version is not known.
    """
    from keras_bert.data.formats.squad_files import read_squad
    from keras_bert.finetuning.question_answering_task import QuestionAnswering
    from keras_bert.io.row_errors import BadRows

    bad_rows = BadRows(skip=values.skip_bad_rows)
    labelled = {"train", "eval"} & set(values.mode)
    version, form = _form(values)

    def read(path, wanted, **purpose):
        return read_squad(path, version, bad_rows=bad_rows, **purpose) if wanted and path is not None else None

    evaluation = read(values.eval_file, labelled, to_evaluate=True)
    prediction = read(values.predict_file, "predict" in values.mode)
    return QuestionAnswering(
        version,
        **form,
        null_threshold=values.null_score_diff_threshold,
        run_dir=values.run_dir,
        init_checkpoint=values.init_checkpoint,
        train=read(values.train_file, "train" in values.mode, to_train=True),
        evaluation={} if evaluation is None else {"eval": evaluation},
        prediction={} if prediction is None else {"predict": prediction},
        bad_rows=bad_rows,
    )


def _form(values):
    """The version, and arguments of the task: what the user gives, or, without training, what the run had."""
    version, form = values.version, {name: values[flag].value for flag, name in OF_THE_TASK.items()}
    if "train" not in values.mode:
        from keras_bert.finetuning.run_models import saved_configuration

        saved = saved_configuration(values.run_dir, values.init_checkpoint)
        form |= {name: saved[name] for flag, name in OF_THE_TASK.items() if name in saved and not values[flag].present}
        version = version or saved.get("task", "").removeprefix("squad")
    if version not in _VERSIONS:
        raise ValueError("which version of SQuAD is it? Give --version=1.1, or 2.0 where questions may be impossible")
    return version, form


def main(argv):
    """Flags to keyword arguments."""
    tasks.flags.run_fine_tuning("tasks.squad", question_answering, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
