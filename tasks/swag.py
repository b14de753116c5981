"""Fine-tunes BERT to choose among continuations of a text, on SWAG, CODAH or files like them.

    python -m tasks.swag --train_file=train.csv --eval_file=val.csv --init_checkpoint=uncased_L-12_H-768_A-12 \\
        --run_dir=runs/swag --batch_size=16 --learning_rate=2e-5
    python -m tasks.swag --train_file=codah.tsv --fold=0 --init_checkpoint=all_minilm_l6_v2 --run_dir=runs/codah_0

--mode says what to do, in any combination: train, eval, predict, export. What comes of it lies in --run_dir:
results.json, evaluation.json, log.jsonl, training_curve.png, predictions/predict.tsv, saved_model/1/. A run that was
interrupted goes on where it stopped when the same command is given again.
"""

from absl import app, flags

import tasks.flags

_OF_FOLDS = ("fold", "folds", "fold_seed")


def define_flags():
    """Defines the flags; not on import, so that one process can import several programs."""
    tasks.flags.define_fine_tuning_flags()
    flags.adopt_module_key_flags(tasks.flags)  # or --help would leave them out
    flags.DEFINE_string("train_file", None, "SWAG's CSV, or CODAH's TSV, to train on.")
    flags.DEFINE_string("eval_file", None, "File to choose the best model by and to evaluate on.")
    flags.DEFINE_string("predict_file", None, "File to answer; labels in it are not looked at.")
    flags.DEFINE_enum("file_format", None, ["swag", "codah"], "Default: codah for .tsv, swag for .csv.")
    flags.DEFINE_integer(
        "fold",
        None,
        "Without --eval_file: which of --folds parts of --train_file, from 0, is tested on; the next one is dev.",
        lower_bound=0,
    )
    flags.DEFINE_integer("folds", 5, "Parts of a cross-validation.", lower_bound=3)
    flags.DEFINE_integer("fold_seed", 1, "Seed of the draw of the parts; the same for all folds.", lower_bound=0)


def multiple_choice(values):
    """The task with the data that the modes need.

    Args:
        values: the flags' values.

    Returns:
        `keras_bert.finetuning.multiple_choice_task.MultipleChoice`.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file's format cannot be told, or the flags of folds do not fit the others or the run.
    """
    from keras_bert.data.example_stream import cross_validation_fold
    from keras_bert.data.formats.swag_files import read_codah, read_swag
    from keras_bert.finetuning.multiple_choice_task import MultipleChoice
    from keras_bert.io.row_errors import BadRows

    bad_rows = BadRows(skip=values.skip_bad_rows)
    labelled = {"train", "eval"} & set(values.mode)
    form = _folds(values)

    def read(path, with_labels=True):
        reader = {"swag": read_swag, "codah": read_codah}[_format_of(path, values.file_format)]
        return reader(path, bad_rows, with_labels)

    train = read(values.train_file) if values.train_file is not None and labelled else None
    evaluation = {}
    if form and train is not None:
        train, dev, test = cross_validation_fold(train, form["fold"], form["fold_seed"], form["folds"])
        evaluation = {"dev": dev, "test": test}
    elif values.eval_file is not None and labelled:
        evaluation = {"eval": read(values.eval_file)}
    prediction = {}
    if values.predict_file is not None and "predict" in values.mode:
        prediction = {"predict": read(values.predict_file, with_labels=False)}
    return MultipleChoice(train if "train" in values.mode else None, evaluation, prediction, bad_rows, form)


def _folds(values):
    """The fold that is left out of training: what the user gives, or, without training, what the run's was.

    A model that was trained on other parts would be judged by questions that it was trained on.
    """
    form = {name: values[name].value for name in _OF_FOLDS}
    given = [name for name in _OF_FOLDS if values[name].present]
    if values.fold is not None and (values.eval_file is not None or values.train_file is None):
        raise ValueError("--fold parts --train_file into train, dev and test: give that, and leave out --eval_file")
    if "train" not in values.mode and values.eval_file is None:
        from keras_bert.finetuning.run_models import saved_configuration

        saved = saved_configuration(values.run_dir, values.init_checkpoint)
        if differing := [name for name in given if saved and saved.get(name) != form[name]]:
            of_the_run = ", ".join(f"{name} {saved.get(name)}" for name in differing)
            raise ValueError(
                f"--{differing[0]}={form[differing[0]]}: the model was trained with {of_the_run}, so that it may have "
                "seen the questions to judge it by; leave the flag out"
            )
        form |= {name: saved[name] for name in _OF_FOLDS if name in saved}
    if given and form["fold"] is None:
        raise ValueError(f"--{given[0]} is of a cross-validation: give --fold, or leave it out")
    return {} if form["fold"] is None else form


def _format_of(path, given):
    formats = {".csv": "swag", ".tsv": "codah"}
    suffix = path.removesuffix(".gz").lower()[-4:]
    if given is None and suffix not in formats:
        raise ValueError(f"the format of {path} cannot be told by its name; give --file_format=swag or codah")
    return given or formats[suffix]


def main(argv):
    """Flags to keyword arguments."""
    tasks.flags.run_fine_tuning("tasks.swag", multiple_choice, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
