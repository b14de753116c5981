"""What exported models that read text have in common: signatures of text, ids and examples, warm-up, dtype."""

import tensorflow as tf
from keras import ops

from keras_bert.export.saved_model import check_export_path, write_saved_model
from keras_bert.export.serving_batching import MOST_ROWS

EXPORT_DTYPES = ("float32", "bfloat16")
_ID_NAMES = ("token_ids", "segment_ids", "padding_mask")
# What the server is warmed up with: a request of one text and one of several, so that both shapes have been run.
_WARMUP_TEXTS = ("warm up", "a second text, which is somewhat longer than the first one was")


def text_signatures(model, text_names, answer, answer_texts=None, several=()):
    """The functions that an exported model offers, with the inputs of each.

    Args:
        model: a model with an encoder and a preprocessor.
        text_names: tuple of str, the names of its text inputs.
        answer: function of a dict of ids that gives a dict of named outputs.
        answer_texts: function of a dict of texts that does; None is `answer` of the preprocessor's ids.
        several: tuple of str, the names of those text inputs that have several texts a row; the ids have an axis for
            them, too.

    Returns:
        dict of signature name to `(function, {input name: tf.TensorSpec})`: `serving_default` takes strings [batch],
        `tokens` the ids [batch, length], `examples` serialized tf.Examples [batch] whose features bear the names of the
        text inputs. Several texts a row are [batch, number], filled up with "".
    """
    features = {
        name: tf.io.RaggedFeature(tf.string) if name in several else tf.io.FixedLenFeature([], tf.string)
        for name in text_names
    }

    def from_ids(ids):
        longest = model.encoder.max_position_embeddings
        message = f"the ids are longer than the {longest} positions of the model"
        with tf.control_dependencies(
            [tf.debugging.assert_less_equal(tf.shape(ids["token_ids"])[-1], longest, message)]
        ):
            ids = {name: tf.identity(values) for name, values in ids.items()}
        return answer(ids)

    text_specs = {name: tf.TensorSpec([None, None] if name in several else [None], tf.string) for name in text_names}

    # A function of the graph: both signatures call it, so that the tokenizer is traced and stored once.
    @tf.function(input_signature=[text_specs], autograph=False)
    def from_texts(texts):
        return answer(model.preprocessor(texts)) if answer_texts is None else answer_texts(texts)

    def from_examples(inputs):
        texts = tf.io.parse_example(inputs["examples"], features)
        return from_texts({name: text.to_tensor("") if name in several else text for name, text in texts.items()})

    ids_spec = tf.TensorSpec([None, None, None] if several else [None, None], tf.int32)
    return {
        "serving_default": (from_texts, text_specs),
        "tokens": (from_ids, dict.fromkeys(_ID_NAMES, ids_spec)),
        "examples": (from_examples, {"examples": tf.TensorSpec([None], tf.string)}),
    }


def warmup_requests(text_names, ids_of_texts, texts=_WARMUP_TEXTS, further=()):
    """Requests that run every signature once for one text and once for several.

    Args:
        text_names: tuple of str, the names of the text inputs.
        ids_of_texts: function of a dict of lists of texts that gives a dict of ids, of which `token_ids`,
            `segment_ids` and `padding_mask` are taken.
        texts: tuple of str, each of which stands for all inputs, or of dicts of name to str, or to a list of str where
            an input has several texts a row.
        further: tuple of str, the names of further signatures, each of which takes the first text under its own name.

    Returns:
        list of `(signature name, {input name: array})`.
    """
    requests = []
    for some in (texts[:1], texts):
        inputs = {name: [text if isinstance(text, str) else text[name] for text in some] for name in text_names}
        ids = ids_of_texts(inputs)
        requests += [
            ("serving_default", inputs),
            ("tokens", {name: ids[name].numpy() for name in _ID_NAMES}),
            ("examples", {"examples": [_example(inputs, row) for row in range(len(some))]}),
            *((name, {name: inputs[text_names[0]]}) for name in further),
        ]
    return requests


def _example(inputs, row):
    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode() for text in _texts_of(texts[row])]))
        for name, texts in inputs.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def _texts_of(value):
    return [value] if isinstance(value, str) else value


def export_head(
    head,
    path,
    dtype,
    signatures,
    text_names,
    ids_of_texts=None,
    warmup_texts=_WARMUP_TEXTS,
    further=(),
    assets=None,
    inputs_per_row=1,
):
    """Writes a head as a SavedModel that takes texts.

    Args:
        head: a `BertHead` with a preprocessor.
        path: str or Path. The folder to write.
        dtype: None, or one of `EXPORT_DTYPES` to store and compute in it.
        signatures: function of the head, in that dtype, that gives its signatures as `text_signatures` does.
        text_names: tuple of str, the names of the text inputs.
        ids_of_texts, warmup_texts, further: as for `warmup_requests`; None is the preprocessor.
        assets: dict of file name to text, to be stored with the vocabulary; or None.
        inputs_per_row: int, about how many inputs of the encoder a row of a request becomes: so many fewer rows does a
            server join.

    Returns:
        Path of the folder.

    Raises:
        FileExistsError: if there is something at `path`.
        ValueError: if there is no preprocessor, or on an unknown dtype.
    """
    check_export_path(path)
    head.require_preprocessor()
    served = with_dtype(head, dtype)
    return write_saved_model(
        path,
        signatures(served),
        [weight.value for weight in served.weights],
        assets={"vocab.txt": "\n".join(head.preprocessor.tokenizer.vocabulary) + "\n", **(assets or {})},
        warmup_requests=warmup_requests(text_names, ids_of_texts or head.preprocessor, warmup_texts, further),
        max_batch_size=MOST_ROWS // inputs_per_row,
    )


def with_dtype(model, dtype):
    """A copy of a model whose variables and matrix products have another dtype.

    Args:
        model: a model with an encoder, a preprocessor, `get_config` and `variables_by_path`.
        dtype: None for the model itself, or one of `EXPORT_DTYPES`.

    Returns:
        The same kind of model.

    Raises:
        ValueError: on an unknown dtype.
    """
    if dtype is None:
        return model
    if dtype not in EXPORT_DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; allowed are None and {EXPORT_DTYPES}")
    encoder = type(model.encoder).from_config({**model.encoder.get_config(), "dtype": dtype})
    config = {**model.get_config(), "encoder": encoder, "preprocessor": model.preprocessor, "dtype": dtype}
    copy, own = type(model)(**config), model.variables_by_path()
    for path, variable in copy.variables_by_path().items():
        variable.assign(ops.cast(own[path].value, variable.dtype))
    return copy
