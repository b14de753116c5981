"""Base class of all task heads: a loss, and Keras' training methods on texts and ids."""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self, Unpack

import keras
import numpy as np
from absl import logging
from keras import ops

from keras_bert.layers.dense import Dense
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.seeds import derive_seed
from keras_bert.models.adapted_model import AdaptedModel
from keras_bert.models.freeze import FREEZE_NONE, freeze_layers
from keras_bert.models.lora import LORA_ARGUMENTS, LoraArguments
from keras_bert.models.paper_encoders.encoder_loading import read_encoder
from keras_bert.models.pretrained import assign_arrays, load_tokenizer
from keras_bert.models.text_model import arrays_of, as_list, checked_batch_size, is_examples, is_stream, separate_labels
from keras_bert.training.loss import mean_loss_weights, total_loss
from keras_bert.typing import PathLike, Tensor
from keras_bert.weights.checkpoint import Checkpoint
from keras_bert.weights.sentence_transformers import EmbeddingSettings

DEFAULT_BATCH_SIZE = 32  # paper, appendix A.3: 16 or 32
ACCURACY_NAMES = ("accuracy", "acc")  # Keras' names of it
LossTerms = dict[str, tuple[Tensor, Tensor]]  # sum and weight, by the name of the loss


class BertHead(AdaptedModel):
    """A Keras model on top of an encoder that trains, evaluates and predicts on raw texts as well as on ids.

    `fit` tokenizes texts once, batches them by length, and trains with the same step as `keras_bert.Trainer`: the same
    data, seed and optimizer give the same weights. Everything else is Keras' own `fit`.

    A subclass names its text columns, tokenizes them (`tokenize_columns`), encodes labels (`encode_labels`), and
    computes its losses (`loss_terms`).

    Args:
        encoder: `BertEncoder`, `BiLstmEncoder` or `TwoDirectionEncoder`.
        preprocessor: converts texts to ids; None for a model that takes ids only.
        freeze: layers to freeze: "none", "embeddings", "encoder", or a number k: the embeddings and the lowest k
            layers. The encoder itself is frozen, also for other models that share it.
        seed: seed of the new layers, of the dropout and of the order of the data in `fit`. None draws one.
        lora_rank: rank of the adapters of LoRA (arXiv 2106.09685), which are trained in place of the encoder, together
            with the head. None trains without adapters. Like `freeze`, it changes the encoder itself.
        lora_alpha: the adapters are scaled by `lora_alpha / lora_rank`; None means a scale of 1.
        lora_dropout: rate of the dropout on the input of the adapters.
        lora_targets: the dense layers with adapters, in PEFT's names: any of "query", "key", "value",
            "attention.output.dense", "intermediate.dense", "output.dense" and "pooler.dense". None means all but the
            last.
        name, dtype, trainable: as for every Keras model; the dtype defaults to the encoder's.

    Raises:
        ValueError: if the preprocessor's vocabulary or length does not fit the encoder, on an unknown freeze, or if the
            arguments of LoRA are out of range or contradict each other.
    """

    # The name of the layer in checkpoints that computes logits for labels; None if there is none.
    head_name: str | None = None
    labels: list[str] | None = None
    problem_type: str | None = None
    # Arguments of the encoder that `from_checkpoint` has by default.
    encoder_defaults: ClassVar[Mapping[str, Any]] = {}
    # Whether batches hold examples of similar length. If not, each batch is divided by its own weight.
    batches_by_length = True
    loss_names: tuple[str, ...] = ("loss",)

    def __init__(
        self,
        encoder: keras.Model,
        preprocessor: Any = None,
        freeze: str | int = FREEZE_NONE,
        seed: int | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        **lora: Unpack[LoraArguments],
    ):
        super().__init__(encoder, preprocessor, name, dtype)
        self._is_trainable = trainable
        self.seed = seed
        self.freeze = freeze
        freeze_layers(encoder, freeze)
        self._enable_lora(**lora)
        self._has_own_loss = True
        self._jit_compiles_step = False
        # An object that Keras does not look into: what it holds is not part of the model.
        self._fit = types.SimpleNamespace(
            step=None,
            seed=int(np.random.randint(2**31)) if seed is None else seed,
            epochs_trained=0,
            validation_batches=None,
            batch_spec=None,
            accumulation_steps=1,
        )

    # === Layers ===

    def dropout_layer(self, rate: float) -> Dropout:
        """Makes the dropout in front of the output layer."""
        return Dropout(rate, derive_seed(self.seed, "dropout"), dtype=self.dtype_policy, name="dropout")

    def output_layer(self, units: int, name: str) -> Dense:
        """Makes the layer that computes logits, in float32: rounding moves probabilities and gains no speed."""
        seed = derive_seed(self.seed, name)
        return Dense(units, initializer_range=self.encoder.initializer_range, seed=seed, dtype="float32", name=name)

    def finish_init(self) -> None:
        """Creates the variables of a subclass's layers, at the end of its constructor."""
        self.build()
        if not self._is_trainable:
            self.trainable = False  # once there are layers, to which Keras passes the value on

    def _discard_functions(self) -> None:
        super()._discard_functions()
        self._fit.step = None

    # === Loss and metrics ===

    def loss_terms(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> LossTerms:
        """Computes the losses of a batch by name: `(sum, weight)`."""
        raise NotImplementedError

    def loss_weights(self, labels: Any, sample_weight: Tensor | None = None) -> dict[str, Tensor]:
        """Computes the weights of `loss_terms`, which depend on the labels alone."""
        return {"loss": ops.sum(self._weights(labels, sample_weight))}

    def _weights(self, labels: Any, sample_weight: Tensor | None) -> Tensor:
        """Returns the weight of each loss of a batch: float32 [rows], for a head with one loss per row."""
        if sample_weight is None:
            return ops.ones((ops.shape(labels)[0],), "float32")
        return ops.reshape(ops.cast(sample_weight, "float32"), (-1,))

    def accuracy_metric(self) -> keras.metrics.Metric | None:
        """Creates the metric for the name "accuracy"; None leaves the name to Keras, which guesses by shapes."""
        return None

    def default_metrics(self) -> list[keras.metrics.Metric] | None:
        """Creates the metrics of `compile(metrics="auto")`."""
        accuracy = self.accuracy_metric()
        return None if accuracy is None else [accuracy]

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """Computes the loss: the sum of `loss_terms`, each divided by its weight, or the loss given to `compile`."""
        if not self._has_own_loss:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        return total_loss(self.loss_terms(y, y_pred, sample_weight))

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = "auto",
        weighted_metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Configures training, with Keras' arguments; the loss is the model's own.

        Args:
            optimizer: any Keras optimizer, or its name; "auto" is `BertAdamW(5e-5)`, without a schedule.
            loss: None for the model's own loss. A Keras loss object or function replaces it; training then is Keras'
                own step.
            metrics: as in Keras; "auto" is those that fit the problem, and "accuracy" means the problem's own.
            jit_compile: whether XLA compiles the forward and backward pass, once per shape of a batch. "auto" is False:
                batches have many shapes.
            loss_weights, weighted_metrics, run_eagerly, steps_per_execution, auto_scale_loss: as in Keras.

        Raises:
            ValueError: if the loss is a name: Keras would compute it from probabilities, and outputs are logits; if
                the model has no such metrics; for BertAdamW on another Keras backend than TensorFlow.
        """
        if any(isinstance(part, str) for part in keras.tree.flatten(loss)):
            raise ValueError(
                f"loss={loss!r} would be computed as if the outputs were probabilities, but they are logits. "
                "Leave `loss` out: the model has its own. Or pass a loss object built with from_logits=True."
            )
        if loss is not None and getattr(self, "class_weights", None) is not None:
            raise ValueError("class_weights are part of the model's own loss; leave out either them or loss=")
        is_tensorflow = keras.backend.backend() == "tensorflow"
        is_auto = isinstance(optimizer, str) and optimizer == "auto"
        if not is_tensorflow and (is_auto or type(optimizer).__name__ == "BertAdamW"):
            raise ValueError(
                "BertAdamW, the default optimizer, needs TensorFlow, and the Keras backend is "
                f"{keras.backend.backend()}; pass a Keras optimizer, for example keras.optimizers.AdamW(5e-5)"
            )
        if is_auto:
            from keras_bert.training.optimizer import BertAdamW

            optimizer = BertAdamW(learning_rate=5e-5)
        if isinstance(metrics, str) and metrics == "auto":
            metrics = self.default_metrics()
        else:
            metrics = self._named_metrics(metrics)
        self._has_own_loss = loss is None
        uses_own_step = is_tensorflow and self._has_own_loss
        self._jit_compiles_step = uses_own_step and jit_compile is True
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=None if weighted_metrics is None else self._named_metrics(weighted_metrics),
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution,
            jit_compile=False if uses_own_step else jit_compile,
            auto_scale_loss=auto_scale_loss,
        )

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the arguments of `compile`, for saving."""
        config = super().get_compile_config()
        return {**config, "jit_compile": self._jit_compiles_step or self.jit_compile} if self.compiled else config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as the saved one was."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def _named_metrics(self, metrics: Any) -> Any:
        """Replaces the name "accuracy" by the head's own metric: Keras guesses it from shapes, takes several labels for
        one-hot rows, and counts what has no label."""
        if metrics is None or self.accuracy_metric() is None:
            return metrics
        metrics = metrics if isinstance(metrics, (list, tuple, dict)) else [metrics]
        return keras.tree.map_structure(
            lambda metric: self.accuracy_metric() if metric in ACCURACY_NAMES else metric, metrics
        )

    # === Training, evaluation and prediction ===

    def make_train_function(self, force: bool = False) -> Any:
        """Makes Keras' train function, and before it the variables of optimizer and step."""
        if keras.backend.backend() == "tensorflow":
            with self.distribute_strategy.scope():
                if not self.optimizer.built:  # within the function, it would be traced twice
                    self.optimizer.build(self.trainable_variables)
                self._make_fit_step(force or self.train_function is None)
        return super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> Any:
        """Makes Keras' test function."""
        if keras.backend.backend() == "tensorflow":
            with self.distribute_strategy.scope():
                self._make_fit_step(False)
        return super().make_test_function(force)

    def _make_fit_step(self, force: bool) -> None:
        if not self._has_own_loss:
            self._fit.step = None
        elif force or self._fit.step is None:
            from keras_bert.models.fit import FitStep

            self._fit.step = FitStep(self, self._fit.seed, self._jit_compiles_step, self._fit.accumulation_steps)

    def train_step(self, *args: Any) -> Any:
        """Keras' hook: trains on a batch, by the step of the `Trainer` unless `compile` was given a loss."""
        step = self._fit.step
        return super().train_step(*args) if step is None else step.train(*args)

    def test_step(self, *args: Any) -> Any:
        """Keras' hook: evaluates a batch."""
        step = self._fit.step
        return super().test_step(*args) if step is None else step.evaluate(*args)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        # Private to Keras, overridden here only (test_fit.py fails if it goes). Under a distribution strategy Keras
        # draws a first batch to see its shapes, and averages it over the replicas, which fails if their rows differ.
        if self._fit.batch_spec is not None and iterator is not None:
            iterator, data_batch = None, self._fit.batch_spec
        super()._maybe_symbolic_build(iterator, data_batch)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[Any, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int = 1,
    ) -> keras.callbacks.History:
        """Trains on texts or ids; Keras' `fit` with the same arguments.

        Texts are tokenized once and batched by length, in an order that the model's seed and the epoch determine:
        calling `fit` three times for one epoch is the same as calling it once for three epochs.

        Args:
            x: texts or ids, in one of these forms:
                texts: a list, array or pandas Series; a dict or DataFrame with the columns that the class names.
                ids: a dict of int arrays [examples, length], or `TokenizedExamples`.
                A batched tf.data.Dataset of `(x, y)` or `(x, y, sample_weight)`, of ids (for `BertClassifier` also of
                texts), a generator of batches of ids, or a `keras.utils.PyDataset`: Keras takes their batches as they
                come.
            y: labels, as `encode_labels` takes them; None if `x` contains them: a dataset, or a dict or DataFrame with
                the column of labels.
            batch_size: examples per batch; 32 if None.
            validation_split: fraction of the examples, the last ones, to evaluate on.
            validation_data: `(x, y)`, `(x, y, sample_weight)`, or data with its own labels, texts or ids.
            shuffle: whether the order changes with every epoch; False keeps the given order, without length buckets.
            class_weight: weight by label name or number.
            sample_weight: float array [examples]. The loss is the weighted mean: divided by the sum of the weights
                (Keras divides by the number of rows).
            epochs, verbose, callbacks, initial_epoch, steps_per_epoch: as in Keras.
            validation_steps, validation_batch_size, validation_freq: as in Keras.

        Returns:
            Keras' History.

        Raises:
            ValueError, TypeError: on labels, texts or ids that do not fit the model.
        """
        self.require_compiled("fit")
        self.check_fit_distribution()
        x, y = separate_labels(as_list(x), y, self.label_column)
        if validation_split:
            if validation_data is not None:
                raise ValueError("give either validation_split or validation_data, not both")
            (x, y, sample_weight), validation_data = self._split(x, y, sample_weight, validation_split)
        arguments = {
            "epochs": epochs,
            "verbose": verbose,
            "callbacks": callbacks,
            "initial_epoch": initial_epoch,
            "steps_per_epoch": steps_per_epoch,
            "validation_steps": validation_steps,
            "validation_freq": validation_freq,
            "validation_batch_size": validation_batch_size,
            "validation_data": self._prepare_validation(validation_data, validation_batch_size or batch_size),
        }
        if is_stream(x):
            if y is not None or sample_weight is not None:
                raise ValueError("a dataset brings its own labels and sample weights: leave y and sample_weight out")
            weights = self._class_weights(class_weight)
            arguments["class_weight"] = None if weights is None else dict(enumerate(weights.tolist()))
            batches = self._prepare_stream(x)
            return self._fit_on((batches, getattr(batches, "element_spec", None)), None, arguments)
        examples = self._examples(x, y, sample_weight, class_weight)
        if keras.backend.backend() != "tensorflow":
            return super().fit(**arrays_of(examples), batch_size=batch_size, shuffle=shuffle, **arguments)
        from keras_bert.data.batching import BUCKET_STEP, BatchPlan
        from keras_bert.models.fit import EpochCallback, training_dataset

        bucket_step = BUCKET_STEP if self.batches_by_length and shuffle else None
        batch_size = checked_batch_size(DEFAULT_BATCH_SIZE if batch_size is None else batch_size)
        plan = BatchPlan(examples.lengths, batch_size, None, bucket_step, self._fit.seed if shuffle else None)
        epoch_callback = EpochCallback(0 if initial_epoch else self._fit.epochs_trained)
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(epoch_callback)
        else:
            callbacks = [epoch_callback, *([] if callbacks is None else keras.tree.flatten(callbacks))]
        batches = training_dataset(examples, plan, epoch_callback.epoch, self.distribute_strategy)
        arguments["callbacks"] = callbacks
        mean_weights = mean_loss_weights(self, examples, plan) if self._has_own_loss else None
        history = self._fit_on(batches, mean_weights, arguments)
        if history.epoch:
            self._fit.epochs_trained = int(epoch_callback.epoch) + 1
        return history

    def _fit_on(self, batches: tuple[Any, Any], mean_loss_weights: Any, arguments: dict[str, Any]) -> Any:
        """Runs Keras' `fit` on batches of ids (and their spec)."""
        dataset, spec = batches
        if keras.backend.backend() == "tensorflow":
            self.make_train_function()
            if self._fit.step is not None:
                self._fit.step.set_mean_loss_weights(mean_loss_weights)
            self._fit.batch_spec = _keras_tensors(spec)
        try:
            return super().fit(dataset, shuffle=False, **arguments)
        finally:
            self._fit.validation_batches = None

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Computes loss and metrics on texts or ids; Keras' `evaluate` with the same arguments.

        Args:
            x, y, batch_size, sample_weight: as for `fit`.
            verbose, steps, callbacks, return_dict: as in Keras.

        Returns:
            What Keras returns: a list of numbers, or a dict with `return_dict=True`.
        """
        arguments = {"verbose": verbose, "steps": steps, "callbacks": callbacks, "return_dict": return_dict, **kwargs}
        if x is not None and x is self._fit.validation_batches:  # called by Keras' fit
            return super().evaluate(x, **arguments)
        self.require_compiled("evaluate")
        self.check_fit_distribution()
        x, y = separate_labels(as_list(x), y, self.label_column)
        if is_stream(x):
            return super().evaluate(self._prepare_stream(x), **arguments)
        if keras.backend.backend() != "tensorflow":
            examples = self._examples(x, y, sample_weight)
            return super().evaluate(**arrays_of(examples), batch_size=batch_size, **arguments)
        batches, spec = self._evaluation_batches(x, y, sample_weight, batch_size)
        self._fit.batch_spec = _keras_tensors(spec)
        return super().evaluate(batches, **arguments)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Trains on a single batch of texts or ids; Keras' `train_on_batch` with the same arguments."""
        self.require_compiled("train_on_batch")
        self.make_train_function()
        if self._fit.step is not None:
            self._fit.step.set_mean_loss_weights(None)
        inputs, labels, weights = self._single_batch(x, y, sample_weight, class_weight)
        return super().train_on_batch(inputs, labels, weights, return_dict=return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """Evaluates a single batch of texts or ids; Keras' `test_on_batch` with the same arguments."""
        self.require_compiled("test_on_batch")
        inputs, labels, weights = self._single_batch(x, y, sample_weight)
        return super().test_on_batch(inputs, labels, weights, return_dict=return_dict)

    def _prepare_validation(self, data: Any, batch_size: int | None) -> Any:
        """Converts validation data to batches for Keras' fit, which passes them on to `evaluate`."""
        if data is None:
            return None
        if isinstance(data, Mapping) or hasattr(data, "columns") or is_examples(data) or is_stream(data):
            data = (data,)
        if not isinstance(data, (tuple, list)) or len(data) not in (1, 2, 3):
            raise ValueError(
                "validation_data must be (x, y), (x, y, sample_weight), TokenizedExamples, a dict or DataFrame with "
                f"labels, or a dataset; got {type(data).__name__}"
            )
        x, y, sample_weight = (*data, None, None)[:3]
        x, y = separate_labels(as_list(x), y, self.label_column)
        if is_stream(x):
            self._fit.validation_batches = self._prepare_stream(x)
        elif keras.backend.backend() != "tensorflow":
            arrays = arrays_of(self._examples(x, y, sample_weight))
            return tuple(part for part in arrays.values() if part is not None)
        else:
            self._fit.validation_batches, _ = self._evaluation_batches(x, y, sample_weight, batch_size)
        return self._fit.validation_batches

    def _evaluation_batches(self, x: Any, y: Any, sample_weight: Any, batch_size: int | None) -> Any:
        from keras_bert.data.batching import BatchPlan
        from keras_bert.models.fit import training_dataset

        examples = self._examples(x, y, sample_weight)
        plan = BatchPlan(examples.lengths, checked_batch_size(DEFAULT_BATCH_SIZE if batch_size is None else batch_size))
        return training_dataset(examples, plan, 0, self.distribute_strategy)

    def require_compiled(self, method: str) -> None:
        """Raises ValueError unless the model was compiled."""
        if not self.compiled:
            raise ValueError(
                f"compile the model before `{method}`, for example model.compile(keras_bert.BertAdamW(5e-5))"
            )

    def check_fit_distribution(self) -> None:
        """Raises ValueError if Keras cannot train under the model's strategy; `predict` can do more."""
        self.check_distribution()
        strategy = getattr(self, "distribute_strategy", None)
        if strategy is not None and strategy.num_replicas_in_sync > 1:
            from keras_bert.models.fit import refuse_workers

            refuse_workers(strategy)
            if self.compiled and self.steps_per_execution > 1:
                raise ValueError(
                    f"steps_per_execution is {self.steps_per_execution}, but Keras runs several steps per execution on "
                    "one device only, not on several replicas: compile with steps_per_execution=1, or use "
                    "keras_bert.Trainer, which has that setting"
                )

    def classifier_arguments(self) -> dict[str, Any] | EmbeddingSettings | None:
        """Returns what a checkpoint stores of this head besides its weights; None without a layer for labels."""
        if self.head_name is None:
            return None
        return {
            "num_labels": 1 if self.labels is None else len(self.labels),
            "label_names": self.labels,
            "problem_type": self.problem_type,
            "classifier_dropout": self.dropout.rate,
        }

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "freeze": self.freeze, "seed": self.seed}

    @classmethod
    def from_checkpoint(cls, path: PathLike, **arguments: Any) -> Self:
        """Creates a model with the weights and the tokenizer of a checkpoint.

        Args:
            path: as for `BertEncoder.from_checkpoint`.
            **arguments: any of
                arguments of the constructor; by default labels and dropout are those of the checkpoint's own head, if
                it has one. Its layer is used if the labels agree, otherwise the layer starts with random weights.
                arguments of the preprocessor, such as `sequence_length`.
                `lower_case`, by default read from the checkpoint or inferred from the vocabulary; `vocabulary`, a file
                or a list of wordpieces instead of the checkpoint's `vocab.txt`.
                `encoder` and `right_to_left`, another kind of encoder for the weights (see
                `keras_bert.models.paper_encoders.encoder_loading.read_encoder`); and arguments of the encoder that
                replace the checkpoint's, such as `dtype`.
                `allow_nonfinite=True` accepts weights that are NaN or infinite.

        Returns:
            A model whose attribute `checkpoint_report` lists what was read, what is random, and what was not used.

        Raises:
            FileNotFoundError, ValueError: if the checkpoint is missing, corrupt, not a BERT, or does not fit; if no
                labels are known; if `lower_case` contradicts the checkpoint.
        """
        own_names = {
            "name",
            "trainable",
            "freeze",
            "seed",
            *LORA_ARGUMENTS,
            *inspect.signature(cls.__init__).parameters,
        }
        own_names -= {"encoder", "preprocessor"}
        own = {name: arguments.pop(name) for name in own_names & arguments.keys()}
        preprocessing = inspect.signature(cls.preprocessor_class().__init__).parameters
        preprocessor_arguments = {name: arguments.pop(name) for name in preprocessing.keys() & arguments.keys()}
        vocabulary, lower_case = arguments.pop("vocabulary", None), arguments.pop("lower_case", None)
        checkpoint, encoder = read_encoder(path, seed=own.get("seed"), **{**cls.encoder_defaults, **arguments})
        checkpoint, stated = cls.read_settings(checkpoint, encoder, own.keys() | preprocessor_arguments.keys())
        for name, value in stated.items():
            (preprocessor_arguments if name in preprocessing else own).setdefault(name, value)
        longest = encoder.max_position_embeddings
        if "sequence_length" not in preprocessor_arguments and preprocessing["sequence_length"].default > longest:
            preprocessor_arguments = {**cls.shortened_preprocessing(longest), **preprocessor_arguments}
            settings = ", ".join(f"{name}={value}" for name, value in preprocessor_arguments.items())
            logging.warning("the encoder has %d positions: preprocessing with %s", longest, settings)
        tokenizer = load_tokenizer(checkpoint, vocabulary, lower_case)
        preprocessor = cls.preprocessor_class()(tokenizer, **preprocessor_arguments)
        head = {} if cls.head_name is None else checkpoint.head_arguments(cls.head_name)
        given = {name: value for name, value in own.items() if value is not None}
        model = cls(encoder, preprocessor=preprocessor, **{**cls.checkpoint_defaults(path, head, given), **given})
        if not model._has_labels_of(head):
            checkpoint = checkpoint.select(lambda variable: not variable.startswith(f"{cls.head_name}/"))
        model.checkpoint_report = assign_arrays(model.variables_by_path(), checkpoint)
        random = [name for name in model.checkpoint_report.random if name.startswith("encoder/")]
        if random and model.lora_rank is not None:
            logging.warning("LoRA does not train these weights, which %s lacks and are random: %s", path, random)
        return model

    @classmethod
    def read_settings(
        cls, checkpoint: Checkpoint, encoder: keras.Model, given: Collection[str]
    ) -> tuple[Checkpoint, dict[str, Any]]:
        """Reads what the folder of a checkpoint states of this class besides the BERT.

        Returns the checkpoint, with the weights of layers that have files of their own, and arguments of constructor
        and preprocessor, which those of the caller, named `given`, replace.
        """
        return checkpoint, {}

    @classmethod
    def shortened_preprocessing(cls, longest: int) -> dict[str, int]:
        """Returns the preprocessor's arguments for an encoder with fewer positions than its default length."""
        return {"sequence_length": longest}

    @classmethod
    def checkpoint_defaults(cls, path: PathLike, head: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the constructor's arguments that a checkpoint's own head determines."""
        rate = head.get("classifier_dropout")
        return {} if rate is None else {"dropout": rate}

    def _has_labels_of(self, head: Mapping[str, Any]) -> bool:
        """Returns whether the output layer of a checkpoint, by its arguments, has this head's labels.

        A layer without label names matches any names of the same number.
        """
        if self.labels is None:
            return True
        if self.problem_type is not None and head.get("problem_type") not in (None, self.problem_type):
            return False
        names = head.get("label_names")
        return self.labels == names if names else len(self.labels) == head.get("num_labels")


def _keras_tensors(spec: Any) -> Any:
    """Converts the spec of a dataset's batches to that from which Keras builds models and metrics."""
    if spec is None:
        return None
    return keras.tree.map_structure(lambda part: keras.KerasTensor([None, *part.shape[1:]], part.dtype.name), spec)
