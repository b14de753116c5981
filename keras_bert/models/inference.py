"""The loop of `predict`: batches of ids through a model, two at a time."""

from __future__ import annotations

import collections
import concurrent.futures
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_bert.data.batching import Examples

DEFAULT_BATCH_SIZE = 64  # a little faster than 32 on a CPU, where each batch has a fixed cost
# Tokens, padding included, of a batch of the default size: more of them gain no speed, and long texts need less padding
# and memory in smaller batches.
_TOKEN_BUDGET = 2048
# One batch leaves cores idle between its operations; a second one fills the gaps (a quarter faster on 2 cores, and a
# third gains nothing more; see docs/performance.md).
_BATCHES_AT_ONCE = 2


class Predictor:
    """Runs a model on a dataset of ids, by one compiled function for all shapes.

    Keras' own loop compiles one for each of the first shapes, waits between batches, and fails under several workers.
    The compiled functions are kept here, where Keras does not track them. On several replicas each takes a share of
    every batch; of several workers each computes everything. `call` maps a model and a batch of ids to a structure of
    tensors, rows first; None calls the model.
    """

    def __init__(self, call: Callable[[Any, Any], Any] | None = None):
        self._call = call or (lambda model, batch: model(batch, training=False))
        self._functions: dict[Any, Any] = {}

    def outputs_by_batch(self, model: keras.Model, batches: tf.data.Dataset, verbose: int | str = 0) -> list[Any]:
        """Returns the model's outputs for a known number of batches, as structures of NumPy arrays."""
        import tensorflow as tf

        forward = self._compiled(model, batches.element_spec)
        device = tf.zeros([]).device  # device of the caller's scope, which threads do not inherit

        def outputs_of(batch: Any) -> Any:
            with tf.device(device):
                return keras.tree.map_structure(lambda tensor: tensor.numpy(), forward(batch))

        progress = keras.utils.Progbar(int(batches.cardinality()), verbose=1 if verbose == "auto" else verbose)
        outputs = []
        with concurrent.futures.ThreadPoolExecutor(_BATCHES_AT_ONCE) as pool:
            for output in _in_order(pool, outputs_of, batches):
                outputs.append(output)
                progress.update(len(outputs))
        return outputs

    def outputs_by_example(
        self, model: keras.Model, examples: Examples, batch_size: int | None = None, verbose: int | str = 0
    ) -> list[tuple[np.ndarray, Any]]:
        """Returns the model's outputs for examples batched by length: per batch their numbers and outputs.

        A batch size of None is at most 64 examples of at most 2,048 tokens together.
        """
        from keras_bert.data.batching import sorted_batches
        from keras_bert.training.strategy import needs_static_shapes

        strategy, is_static = model.distribute_strategy, needs_static_shapes(model.distribute_strategy)
        token_budget = _TOKEN_BUDGET if batch_size is None and not is_static else None
        batch_size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
        if is_static:
            batch_size += -batch_size % strategy.num_replicas_in_sync  # a static shape for each replica
        batches, numbers_by_batch = sorted_batches(examples, batch_size, token_budget, is_static)
        outputs = self.outputs_by_batch(model, batches, verbose)
        results = []
        for numbers, output in zip(numbers_by_batch, outputs, strict=True):
            rows = slice(len(numbers))  # a last batch of static shape ends with rows of padding
            results.append((numbers, keras.tree.map_structure(operator.itemgetter(rows), output)))
        return results

    def outputs_of_examples(
        self,
        model: keras.Model,
        examples: Examples,
        batch_size: int | None = None,
        verbose: int | str = 0,
        padding: float = 0.0,
    ) -> Any:
        """Returns the model's outputs for examples, in their order, as one structure of arrays, rows first.

        Outputs with a value per token are padded to the longest example with `padding`.
        """
        parts = self.outputs_by_example(model, examples, batch_size, verbose)

        def joined(*arrays: np.ndarray) -> np.ndarray:
            shape = np.max([array.shape[1:] for array in arrays], axis=0).astype(int)
            result: Any = np.full([len(examples), *shape], padding, arrays[0].dtype)
            for (numbers, _), array in zip(parts, arrays, strict=True):
                result[(numbers, *map(slice, array.shape[1:]))] = array
            return result

        return keras.tree.map_structure(joined, *(outputs for _, outputs in parts))

    def _compiled(self, model: keras.Model, spec: Any) -> Any:
        import tensorflow as tf

        key = tuple(sorted(spec.items()))
        if key not in self._functions:
            function = tf.function(_forward(model, self._call), input_signature=[spec], autograph=False)
            function.get_concrete_function()  # traced here: Keras keeps settings such as dtype policies per thread
            self._functions[key] = function
        return self._functions[key]


def outputs_by_slice(
    function: Callable[..., Any], preprocessor: Any, *columns: np.ndarray
) -> Iterator[dict[str, list[Any]]]:
    """Yields the outputs, as lists, of a function of strings for at most `DEFAULT_BATCH_SIZE` rows at a time.

    Warns at the end of all texts that were cut (`truncated`).
    """
    import tensorflow as tf

    from keras_bert.data.tokenized_examples import warn_of_cut_texts

    is_cut: list[bool] = []
    for start in range(0, len(columns[0]), DEFAULT_BATCH_SIZE):
        rows = slice(start, start + DEFAULT_BATCH_SIZE)
        outputs = function(*(tf.constant(column[rows], tf.string) for column in columns))
        outputs = {name: values.numpy().tolist() for name, values in outputs.items()}
        is_cut += outputs["truncated"]
        yield outputs
    warn_of_cut_texts(is_cut, preprocessor)


def _forward(model: keras.Model, call: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Returns a function from a batch to the model's outputs, on all local replicas of the model's strategy."""
    import tensorflow as tf

    from keras_bert.training.batch_slices import slice_batch
    from keras_bert.training.strategy import get_num_local_replicas

    strategy = getattr(model, "distribute_strategy", tf.distribute.get_strategy())
    if strategy.num_replicas_in_sync == 1:
        return lambda batch: call(model, batch)
    num_replicas = get_num_local_replicas(strategy)

    def on_replica(batch: Any) -> Any:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return call(model, slice_batch(batch, replica % num_replicas, num_replicas))

    def on_all(batch: Any) -> Any:
        outputs = strategy.run(on_replica, args=(batch,))
        return tf.nest.map_structure(
            lambda value: tf.concat(strategy.experimental_local_results(value), axis=0), outputs
        )

    return on_all


def _in_order(
    pool: concurrent.futures.Executor, function: Callable[[Any], Any], batches: tf.data.Dataset
) -> Iterator[Any]:
    """Yields the function's results in the order of the batches, with only a few in flight."""
    waiting: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
    for batch in batches:
        waiting.append(pool.submit(function, batch))
        if len(waiting) > _BATCHES_AT_ONCE:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
