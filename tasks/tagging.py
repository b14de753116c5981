"""Fine-tunes BERT to tag words, with named entities or parts of speech, on CoNLL's column files.

    python -m tasks.tagging --train_file=train.conll --dev_file=dev.conll --test_file=test.conll \\
        --init_checkpoint=cased_L-12_H-768_A-12 --run_dir=runs/entities --document_context --max_seq_length=512

--mode says what to do, in any combination: train, eval, predict, export. What comes of it lies in --run_dir:
results.json, evaluation.json, evaluation_dev.conll with the tags predicted, log.jsonl, training_curve.png,
predictions/predict.conll, saved_model/1/. A run that was interrupted goes on where it stopped when the same command is
given again.
"""

from absl import app, flags, logging

import tasks.flags

# What a run's configuration says of its task's form.
OF_THE_TASK = ("labels", "scheme", "document_context", "token_column", "tag_column", "comment_prefix")
_SCHEMES = ("IOB1", "IOB2", "IOBES", "plain")  # `keras_bert.text.tags.SCHEMES`, which is imported later


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    # Without length buckets: a quarter slower on WNUT-17, and a point of F1 better (docs/results.md).
    tasks.flags.define_fine_tuning_flags(bucket_step=0)
    flags.adopt_module_key_flags(tasks.flags)  # or --help would leave them out
    flags.DEFINE_multi_string("train_file", [], "CoNLL file to train on, or a pattern; repeat it for several.")
    flags.DEFINE_multi_string("dev_file", [], "File to choose the best model by and to evaluate on.")
    flags.DEFINE_multi_string("test_file", [], "Further file to evaluate on.")
    flags.DEFINE_multi_string("predict_file", [], "File to tag; tags in it are not looked at.")
    flags.DEFINE_integer("token_column", 0, "Column of the tokens, from 0, or from the end if negative.")
    flags.DEFINE_integer("tag_column", -1, "Column of the tags.")
    flags.DEFINE_string("comment_prefix", None, "What lines of comments begin with; default: there are none.")
    flags.DEFINE_enum("scheme", None, _SCHEMES, "How tags spell entities; default: as the files' tags look.")
    flags.DEFINE_list("labels", None, "The tags, comma-separated; default: those in the training file.")
    flags.DEFINE_bool("document_context", False, "Read a sentence with the text around it in its document.")


def token_classification(values):
    """The task with the data that the modes need.

    Args:
        values: the flags' values.

    Returns:
        `keras_bert.finetuning.token_classification_task.TokenClassification`.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if columns or tags do not fit.
    """
    from keras_bert.data.formats.conll import read_conll
    from keras_bert.finetuning.token_classification_task import TokenClassification
    from keras_bert.io.row_errors import BadRows
    from keras_bert.text.tags import detect_scheme

    bad_rows = BadRows(skip=values.skip_bad_rows)
    form = _form(values)

    def read(paths, wanted, known_tags=None, tag_column=form["tag_column"]):
        if not paths or not wanted:
            return None
        columns = {name: form[name] for name in ("token_column", "comment_prefix")}
        return read_conll(paths, tag_column, scheme=form["scheme"], bad_rows=bad_rows, known_tags=known_tags, **columns)

    labels = form.pop("labels")
    train = read(values.train_file, "train" in values.mode, labels)
    if train is not None:
        tags = [sentence.tags for sentence in train]
        form["scheme"] = form["scheme"] or detect_scheme(tags)
        labels = labels or sorted(
            {tag for of_sentence in tags for tag in of_sentence}, key=lambda tag: (tag != "O", tag)
        )
        logging.info("%d tags of the scheme %s: %s", len(labels), form["scheme"], ", ".join(labels))
    labelled = {"train", "eval"} & set(values.mode)
    files = {"dev": values.dev_file, "test": values.test_file}
    evaluation = {split: read(paths, labelled, labels) for split, paths in files.items() if paths}
    evaluation = {split: examples for split, examples in evaluation.items() if examples is not None}
    if form["scheme"] is None:  # a checkpoint that no run has trained
        form["scheme"] = detect_scheme(sentence.tags for of_split in evaluation.values() for sentence in of_split)
    prediction = read(values.predict_file, "predict" in values.mode, tag_column=None)
    return TokenClassification(
        labels,
        form.pop("scheme"),
        form.pop("document_context"),
        train,
        evaluation,
        {} if prediction is None else {"predict": prediction},
        bad_rows,
        form,
    )


def _form(values):
    """The form of the data: what the user gives, or, without training, what the run's was."""
    form = {name: values[name].value for name in OF_THE_TASK}
    if "train" not in values.mode:
        from keras_bert.finetuning.run_models import saved_configuration

        saved = saved_configuration(values.run_dir, values.init_checkpoint)
        form |= {name: saved[name] for name in OF_THE_TASK if name in saved and not values[name].present}
    return form


def main(argv):
    """Flags to keyword arguments."""
    tasks.flags.run_fine_tuning("tasks.tagging", token_classification, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
