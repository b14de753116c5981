"""The loop of `predict`: batches of ids through a model, two at a time."""

import collections
import concurrent.futures

import keras
import numpy as np

from keras_bert.models.head import PREDICTION_BATCH_SIZE

# One batch leaves cores idle between its operations; a second one fills the gaps (a quarter faster on 2 cores, and a
# third one gains nothing more; see docs/performance.md).
_BATCHES_AT_ONCE = 2


class Predictor:
    """Runs a model on a dataset of ids, by one compiled function for all their shapes.

    Keras' own loop compiles one for each of the first shapes, waits between batches, and fails under several workers.
    The compiled functions are kept, in an object that Keras does not look into. On several replicas each takes a part
    of every batch; of several workers each computes everything.

    Args:
        call: function of a model and a batch of ids that gives a tensor, one row an example; None calls the model.

    Example:

    >>> from keras_bert.data.in_memory import text_batches, trim_padding
    >>> encoder = keras_bert.BertEncoder(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=2)
    >>> model = keras_bert.BertClassifier(encoder, labels=["bad", "good"])
    >>> names = ("padding_mask", "segment_ids", "token_ids")
    >>> batches = text_batches({name: np.ones([3, 5], "int32") for name in names}, trim_padding, 2)
    >>> Predictor()(model, batches, verbose=0).shape
    (3, 2)
    """

    def __init__(self, call=None):
        self._call = call or (lambda model, batch: model(batch, training=False))
        self._functions = {}

    def __call__(self, model, batches, verbose):
        """The model's outputs, one after another.

        Args:
            model, batches, verbose: as for `outputs_of_batches`.

        Returns:
            NumPy array, one row an example.
        """
        return np.concatenate(self.outputs_of_batches(model, batches, verbose))

    def outputs_of_batches(self, model, batches, verbose):
        """The model's outputs, batch by batch.

        Args:
            model: a Keras model that takes dicts of ids.
            batches: tf.data.Dataset of such dicts, of a known number of batches.
            verbose: as in Keras' `predict`.

        Returns:
            list of NumPy arrays, one row an example.
        """
        import tensorflow as tf

        forward = self._compiled(model, batches.element_spec)
        device = tf.zeros([]).device  # where the caller's scope puts things; threads do not inherit it

        def outputs_of(batch):
            with tf.device(device):
                return forward(batch).numpy()

        progress = keras.utils.Progbar(int(batches.cardinality()), verbose=1 if verbose == "auto" else verbose)
        outputs = []
        with concurrent.futures.ThreadPoolExecutor(_BATCHES_AT_ONCE) as pool:
            for output in _in_order(pool, outputs_of, batches):
                outputs.append(output)
                progress.update(len(outputs))
        return outputs

    def outputs_of_examples(self, model, examples, batch_size, verbose):
        """The model's outputs for tokenized examples, those of like length together.

        Args:
            model, verbose: as for `outputs_of_batches`.
            examples: `TokenizedExamples`; labels are not looked at.
            batch_size: int. Examples in a batch; 64 if None.

        Returns:
            list, for each batch a pair: int array, the numbers of its examples, and their outputs, an array with one
            row for each.
        """
        from keras_bert.data.batching import sorted_batches
        from keras_bert.training.strategy import needs_static_shapes

        is_static = needs_static_shapes(model.distribute_strategy)
        batches, order = sorted_batches(examples, batch_size or PREDICTION_BATCH_SIZE, is_static)
        outputs = self.outputs_of_batches(model, batches, verbose)
        numbers = np.split(order, np.cumsum([len(output) for output in outputs])[:-1])
        # A last batch of static shape ends with rows of padding.
        return [(of_batch, output[: len(of_batch)]) for of_batch, output in zip(numbers, outputs, strict=True)]

    def _compiled(self, model, spec):
        import tensorflow as tf

        inputs = tuple(sorted(spec.items()))
        if inputs not in self._functions:
            function = tf.function(_forward(model, self._call), input_signature=[spec], autograph=False)
            function.get_concrete_function()  # built here: Keras keeps what is in force, such as policies, by thread
            self._functions[inputs] = function
        return self._functions[inputs]


def _forward(model, call):
    """A function from a batch to the model's outputs, on all local replicas of the model's strategy."""
    import tensorflow as tf

    from keras_bert.training.batch_slices import slice_batch
    from keras_bert.training.strategy import get_num_local_replicas

    strategy = getattr(model, "distribute_strategy", tf.distribute.get_strategy())
    if strategy.num_replicas_in_sync == 1:
        return lambda batch: call(model, batch)
    local_replicas = get_num_local_replicas(strategy)

    def on_replica(batch):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return call(model, slice_batch(batch, replica % local_replicas, local_replicas))

    def on_all(batch):
        return tf.concat(strategy.experimental_local_results(strategy.run(on_replica, args=(batch,))), axis=0)

    return on_all


def _in_order(pool, function, batches):
    """The function's results in the order of the batches, of which only a few are ahead."""
    waiting = collections.deque()
    for batch in batches:
        waiting.append(pool.submit(function, batch))
        if len(waiting) > _BATCHES_AT_ONCE:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
