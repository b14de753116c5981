"""What the tasks of fine-tuning have in common: the data of their modes, tokenized once, and metrics by split."""

from keras_bert.finetuning.plots import draw_training_curve


class FineTuningTask:
    """A task as `keras_bert.finetuning.fine_tuner` wants it, on given data.

    A subclass makes the model (`make_model`), tokenizes (`training_examples`), computes metrics (`split_metrics`), and
    says what is reported, predicted and exported (`configuration`, `report`, `write_predictions`, `export`).

    Args:
        name: str, for the results.
        score: str. The metric that says which model is best, of which more is better.
        train: examples to train on (an `ExampleStream`, or any iterable that can be read again), or None.
        evaluation: dict of split to labelled examples. The first decides which model is best.
        prediction: dict of split to examples to predict.
        bad_rows: a `BadRows` that the readers report to, or None.
        models_of: tuple of str. Names of other tasks whose trained models this task takes as its own.
        flags: dict of "train", "eval" and "predict" to the flag that gives the examples, for messages; or None.
    """

    def __init__(
        self, name, score, train=None, evaluation=None, prediction=None, bad_rows=None, models_of=(), flags=None
    ):
        self.name = name
        self._train = train
        self._evaluation = evaluation or {}
        self._prediction = prediction or {}
        self._bad_rows = bad_rows
        self._models_of = (name, *models_of)
        self._flags = flags or {}
        self._tokenized = {}
        first = next(iter(self._evaluation), None)
        self.score = None if first is None else f"{first}/{score}"

    def check(self, modes):
        """Refuses modes that there is no data for.

        Args:
            modes: collection of str.

        Raises:
            ValueError: if there is none.
        """
        for mode, data, source, what in (
            ("train", self._train, "train", "examples to train on"),
            ("train", self._evaluation, "eval", "labelled examples to choose the best model by"),
            ("eval", self._evaluation, "eval", "labelled examples to evaluate on"),
            ("predict", self._prediction, "predict", "examples to predict"),
        ):
            if mode in modes and not data:
                advice = f"; give {self._flags[source]}" if source in self._flags else ""
                raise ValueError(f"--mode has {mode!r}, but {self.name} has no {what}{advice}")

    def check_configuration(self, configuration):
        """Refuses the model of a run for another task.

        Args:
            configuration: dict, of the run.

        Raises:
            ValueError: if the run was for another task.
        """
        if configuration.get("task") not in self._models_of:
            raise ValueError(
                f"the model is of a run for the task {configuration.get('task')!r}, and this is {self.name!r}; "
                "give the folder of a run for this task"
            )

    def require_trained(self, model, head, checkpoint, what):
        """Refuses a model whose own layer is not of the checkpoint.

        Args:
            model: a model with `checkpoint_report`.
            head: str, the name that the paths of the layer's variables begin with.
            checkpoint: Path, for the message.
            what: str, what the checkpoint lacks, for the message.

        Raises:
            ValueError: if the layer began at random.
        """
        if any(name.startswith(f"{head}/") for name in model.checkpoint_report.random):
            raise ValueError(
                f"{checkpoint} has no trained {what}; train one (--mode=train), or give the model of a run that has"
            )

    def tokenized_once(self, split, tokenize):
        """What a split was tokenized to, once for all trials: they share data, vocabulary and length.

        Args:
            split: str.
            tokenize: function without arguments that tokenizes it.

        Returns:
            What `tokenize` gave.
        """
        if split not in self._tokenized:
            self._tokenized[split] = tokenize()
            if self._bad_rows is not None:
                self._bad_rows.log_total()
        return self._tokenized[split]

    def read_predictions_once(self):
        """Reads the examples to predict, so that what is wrong with them is known beforehand."""
        for examples in self._prediction.values():
            for _ in examples:
                pass

    def split_metrics(self, model, split, batch_size):
        """The metrics of an evaluation split: dict of name to float."""
        raise NotImplementedError

    def loss_weight(self, examples):
        """What the losses of all training examples are divided by to give their mean, if each has the same say.

        Args:
            examples: `TokenizedExamples`, as `training_examples` gives.

        Returns:
            int: how many have a loss, here the examples themselves.
        """
        return len(examples)

    def export_settings(self):
        """What an export depends on beside the model: dict fit for JSON."""
        return {}

    def evaluate(self, model, batch_size):
        """The metrics of all evaluation splits: dict of "split/metric" to float."""
        return by_split({split: self.split_metrics(model, split, batch_size) for split in self._evaluation})

    def draw_training_curve(self, folder, log):
        """Draws loss and metrics over the updates."""
        draw_training_curve(folder / "training_curve.png", log)


def by_split(metrics):
    """Metrics of several splits as one dict of "split/metric" to float.

    Args:
        metrics: dict of split to dict of name to float.

    Returns:
        dict.
    """
    return {f"{split}/{name}": value for split, of_split in metrics.items() for name, value in of_split.items()}


def describe_data(examples, what):
    """Tokenized examples in a few words that change when they do, for a run's configuration.

    Args:
        examples: dict of split to `TokenizedExamples`.
        what: str, what they are called.

    Returns:
        dict of split to str.
    """
    return {split: f"{len(of_split)} {what}, {of_split.fingerprint()}" for split, of_split in examples.items()}
