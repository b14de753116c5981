"""Exports heads: SavedModels with text, id and example signatures and warm-up requests; ids for other runtimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from keras_bert.export.export_options import SAVED_MODEL, ExportOptions
from keras_bert.export.runtime_folder import Readme, Samples, check_runtime, write_runtime_folder
from keras_bert.export.saved_model import check_export_path, write_saved_model
from keras_bert.export.serving_files import max_batch_size
from keras_bert.models.lora import copy_merged
from keras_bert.models.pretrained import tokenizer_settings
from keras_bert.typing import PathLike
from keras_bert.weights.hugging_face_tokenizer import TOKENIZER_NAME, tokenizer_files

if TYPE_CHECKING:
    from keras_bert.export.saved_model import Signatures

Tensors = Mapping[str, tf.Tensor]

_MAX_CALIBRATION_TEXTS = 300  # more change the measured ranges little, and take time
_ID_NAMES = ("token_ids", "segment_ids", "padding_mask")


@dataclass(frozen=True)
class TextInputs:
    """The text inputs of an exported model."""

    names: tuple[str, ...]
    # Converts a dict of texts to the encoder's ids; None means the head's preprocessor.
    to_ids: Callable[[Mapping[str, Any]], Tensors] | None = None
    # Requests of one text and of two, so that both shapes are run. A string stands for every input, a dict gives each
    # input its text, or its list of texts.
    warmup: tuple[Any, ...] = ("warm up", "a second text, which is somewhat longer than the first one was")
    # Inputs with several texts per row, [batch, texts], padded with "". The ids get the same axis.
    list_names: tuple[str, ...] = ()
    # How the tokenizers library shortens pairs.
    truncation: str = "longest_first"


def text_signatures(
    model: Any,
    inputs: TextInputs,
    answer_ids: Callable[[Tensors], Tensors],
    answer_texts: Callable[[Tensors], Tensors] | None = None,
) -> Signatures:
    """Returns the signatures `serving_default` (strings), `tokens` (ids) and `examples` (serialized tf.Examples).

    `answer_ids` maps a dict of ids to a dict of named outputs. `answer_texts` does the same for a dict of texts; None
    is `answer_ids` of the preprocessed texts.
    """
    list_names = inputs.list_names
    features = {
        name: tf.io.RaggedFeature(tf.string) if name in list_names else tf.io.FixedLenFeature([], tf.string)
        for name in inputs.names
    }
    text_specs = {name: tf.TensorSpec([None, None] if name in list_names else [None], tf.string) for name in features}

    def from_ids(ids: Tensors) -> Tensors:
        return answer_ids(_checked_ids(ids, model.encoder))

    # A tf.function, so that the tokenizer is traced and stored once for both signatures that call it.
    @tf.function(input_signature=[text_specs], autograph=False)
    def from_texts(texts: Tensors) -> Tensors:
        return answer_ids(model.preprocessor(texts)) if answer_texts is None else answer_texts(texts)

    def from_examples(serialized: Tensors) -> Tensors:
        texts = tf.io.parse_example(serialized["examples"], features)
        return from_texts({name: text.to_tensor("") if name in list_names else text for name, text in texts.items()})

    ids_spec = tf.TensorSpec([None, None, None] if list_names else [None, None], tf.int32)
    return {
        "serving_default": (from_texts, text_specs),
        "tokens": (from_ids, dict.fromkeys(_ID_NAMES, ids_spec)),
        "examples": (from_examples, {"examples": tf.TensorSpec([None], tf.string)}),
    }


def _checked_ids(ids: Tensors, encoder: Any) -> Tensors:
    """Returns the ids of a request, after asserting in the graph that they are ids that the encoder was trained on.

    Without this, an id of -1 would be the last wordpiece, a segment without an embedding would be none, and ids of one
    row would be repeated for all.
    """
    longest, limits = encoder.max_position_embeddings, {"token_ids": encoder.vocab_size}
    limits |= {"segment_ids": encoder.type_vocab_size, "padding_mask": 2}
    shape = tf.shape(ids["token_ids"])
    message = f"the ids are longer than the {longest} positions of the model"
    assertions = [tf.debugging.Assert(shape[-1] <= longest, [message, shape])]
    for name, limit in limits.items():
        values, own_shape = ids[name], tf.shape(ids[name])
        message = f"{name} must have the shape of token_ids; the two shapes are"
        assertions.append(tf.debugging.Assert(tf.reduce_all(own_shape == shape), [message, own_shape, shape]))
        # Of no ids, the minimum is the greatest number and the maximum the lowest, and both conditions hold.
        lowest, highest = tf.reduce_min(values), tf.reduce_max(values)
        message = f"{name} must be from 0 to {limit - 1}; the lowest and highest are"
        is_in_range = tf.logical_and(lowest >= 0, highest < limit)
        assertions.append(tf.debugging.Assert(is_in_range, [message, lowest, highest]))
    with tf.control_dependencies(assertions):
        return {name: tf.identity(values) for name, values in ids.items()}


def export_head(
    head: Any,
    path: PathLike,
    options: ExportOptions,
    make_signatures: Callable[[Any], Signatures],
    inputs: TextInputs,
    assets: Mapping[str, str] | None = None,
    inputs_per_row: int = 1,
    variables: Sequence[tf.Variable] = (),
) -> Path:
    """Writes a head as a SavedModel that takes texts, or as a folder with a model of ids, and returns the folder.

    `make_signatures` is called with the head in the dtype of the export. `assets` are files by name, stored with the
    vocabulary. `inputs_per_row` is the approximate number of encoder inputs per row of a request: a server joins that
    many times fewer rows. `variables` are those that the signatures use besides the weights.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"`export` needs TensorFlow, but the Keras backend is {keras.backend.backend()}; write the model with "
            "`save_checkpoint`, then load and export it in a process with KERAS_BACKEND=tensorflow"
        )
    head.require_preprocessor()
    if options.format != SAVED_MODEL:
        return _export_for_runtime(head, path, options, make_signatures, inputs, assets or {})
    check_export_path(path)
    served = with_dtype(head, options.dtype)
    signatures = make_signatures(served)
    return write_saved_model(
        path,
        signatures,
        [*(weight.value for weight in served.weights), *variables],
        assets={"vocab.txt": "\n".join(head.preprocessor.tokenizer.vocabulary) + "\n", **(assets or {})},
        warmup_requests=_warmup_requests(signatures, inputs, inputs.to_ids or head.preprocessor),
        max_batch_size=max_batch_size(head.preprocessor.sequence_length, inputs_per_row),
    )


def _export_for_runtime(
    head: Any,
    path: PathLike,
    options: ExportOptions,
    make_signatures: Callable[[Any], Signatures],
    inputs: TextInputs,
    assets: Mapping[str, str],
) -> Path:
    """Writes the numeric outputs of the signature `tokens` for a runtime without strings."""
    check_runtime(options.format, options.quantize)
    texts = options.calibration_texts
    calibration = [] if texts is None else calibration_ids(head, texts)
    preprocessor = head.preprocessor
    files = {**tokenizer_files(tokenizer_settings(preprocessor.tokenizer), preprocessor.sequence_length), **assets}
    if TOKENIZER_NAME not in files:
        raise ValueError(f"the vocabulary has an entry twice, which a {TOKENIZER_NAME} cannot hold; remove one")
    served = with_dtype(head, None if head.encoder.dtype_policy.name == "float32" else "float32")
    signatures = make_signatures(served)
    answer_ids, specs = signatures["tokens"]
    named = [tf.TensorSpec(specs[name].shape, tf.int32, name) for name in _ID_NAMES]

    @tf.function(input_signature=named, autograph=False)
    def answer_numbers(token_ids: tf.Tensor, segment_ids: tf.Tensor, padding_mask: tf.Tensor) -> Tensors:
        answers = answer_ids(dict(zip(_ID_NAMES, (token_ids, segment_ids, padding_mask), strict=True)))
        # One number per row, such as the score of one label or the best choice, follows from the other outputs.
        return {name: value for name, value in answers.items() if value.dtype != tf.string and value.shape.rank > 1}

    requests = _warmup_requests(signatures, inputs, inputs.to_ids or preprocessor)
    texts_ids = [request for name, request in requests if name == "tokens"]
    choices, longest = (2,) if inputs.list_names else (), served.encoder.max_position_embeddings
    sizes = ((1, 1), (3, min(7, longest)), (1, longest))
    random_ids = [_random_ids(served.encoder, (rows, *choices, length)) for rows, length in sizes]
    samples = Samples(texts_ids, random_ids, calibration)
    readme = _readme(head, inputs, answer_numbers.get_concrete_function().structured_outputs)
    return write_runtime_folder(path, options, answer_numbers, samples, files, readme)


def calibration_ids(head: Any, texts: Any) -> list[dict[str, np.ndarray]]:
    """Returns the ids of texts, one at a time; a random part of them if there are many."""
    examples = head.unlabelled_examples(texts)
    rows = np.random.default_rng(0).permutation(len(examples))[:_MAX_CALIBRATION_TEXTS]
    batches = (examples.batch(tf.constant([row])) for row in rows)
    inputs = (batch[0] if isinstance(batch, tuple) else batch for batch in batches)
    return [{name: ids[name].numpy() for name in _ID_NAMES} for ids in inputs]


def _random_ids(encoder: Any, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Returns ids whose first of several rows is padded."""
    generator = np.random.default_rng(0)
    mask = np.ones(shape, "int32")
    if shape[0] > 1:
        mask[0, ..., shape[-1] // 2 :] = 0
    limits = (encoder.vocab_size, encoder.type_vocab_size)
    ids = [generator.integers(limit, size=shape, dtype="int32") for limit in limits]
    return dict(zip(_ID_NAMES, (*ids, mask), strict=True))


def _readme(head: Any, inputs: TextInputs, outputs: Tensors) -> Readme:
    """Returns the parts of a README.md that do not depend on the runtime."""
    preprocessor, values = head.preprocessor, "values"
    texts: list[Any] = [text if isinstance(text, str) else tuple(text.values()) for text in inputs.warmup]
    if len(inputs.names) == 2:
        texts = [(text, text) if isinstance(text, str) else text for text in texts]
    if inputs.list_names:
        prompt, choices = texts[0]
        texts, values = [(prompt, choice) for choice in choices], "[values]"
    is_literal = not preprocessor.tokenizer.special_tokens_in_text
    code = f"""tokenizer = Tokenizer.from_file("{TOKENIZER_NAME}")
tokenizer.encode_special_tokens = {is_literal}  # whether [SEP] in a text is an ordinary word
tokenizer.enable_truncation({preprocessor.sequence_length}, strategy="{inputs.truncation}")
tokenizer.enable_padding(pad_id={preprocessor.tokenizer.pad_id})
rows = tokenizer.encode_batch({texts!r})
ids = {{"token_ids": [row.ids for row in rows], "segment_ids": [row.type_ids for row in rows]}}
ids["padding_mask"] = [row.attention_mask for row in rows]
ids = {{name: np.array({values}, np.int32) for name, values in ids.items()}}"""
    shape = "[questions, choices, length]" if inputs.list_names else "[batch, length]"
    notes = [f"Inputs: `{'`, `'.join(_ID_NAMES)}`, int32 {shape}. The mask is 0 at padding.", "", "Outputs:", ""]
    if len(inputs.names) == 2 and inputs.truncation == "longest_first":
        notes[0] += (
            " Of two texts that are too long together, the tokenizers library may keep one token less of the first, and"
            " one more of the second, than `predict` of keras_bert."
        )
    for name, output in outputs.items():
        sizes = ["any" if size is None else str(size) for size in output.shape]
        notes.append(f"- `{name}`: {output.dtype.name} [{', '.join(sizes)}]")
    return Readme(type(head).__name__, code, "\n".join(notes))


def _warmup_requests(
    signatures: Signatures, inputs: TextInputs, to_ids: Callable[[Mapping[str, Any]], Tensors]
) -> list[tuple[str, Mapping[str, Any]]]:
    """Requests of one text and of all warm-up texts to every signature."""
    requests: list[tuple[str, Mapping[str, Any]]] = []
    for rows in (inputs.warmup[:1], inputs.warmup):
        texts = {name: [text if isinstance(text, str) else text[name] for text in rows] for name in inputs.names}
        ids = to_ids(texts)
        by_signature = {
            "serving_default": texts,
            "tokens": {name: ids[name].numpy() for name in _ID_NAMES},
            "examples": {"examples": [_example(texts, row) for row in range(len(rows))]},
        }
        for name, (_, specs) in signatures.items():  # any other signature has one text input
            requests.append((name, by_signature.get(name) or {next(iter(specs)): texts[inputs.names[0]]}))
    return requests


def _example(texts: Mapping[str, list[Any]], row: int) -> bytes:
    features = {}
    for name, column in texts.items():
        values = [column[row]] if isinstance(column[row], str) else column[row]
        features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode() for text in values]))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def with_dtype(model: Any, dtype: str | None) -> Any:
    """Returns a copy of a head that stores and computes in another dtype, with adapters of LoRA merged.

    For None, it is the model's own dtype; without adapters, the head itself is returned.
    """
    if dtype is None and getattr(model, "lora_rank", None) is None:
        return model
    return copy_merged(model, dtype)
