"""Shows where each token of a text, or of a pair of texts, looks: a page with all layers and heads, for any browser.

    python -m tools.attention --preset=bert_tiny_novels --text="It was the best of times." --output=attention.html
    python -m tools.attention --checkpoint=runs/rte/model --text="It rains." --text_b="It is wet." --output=pair.html

A checkpoint is a folder of Hugging Face's form (such as model/ of a run) or one of google-research/bert;
--preset names one that this package knows. [MASK] in a text is the special token.

The page is one file, which loads nothing; it takes 1.4 bytes a weight, for 12 layers of 12 heads 3 MB with 128 tokens
and 50 MB with 512. Beyond 67 million weights it is refused: --layers chooses some, --max_seq_length cuts the text.
"""

import os
import sys
import textwrap

import numpy as np
from absl import app, flags, logging

from tools.attention_page import Attention, build_page, check_size
from tools.output_file import check_output

_TITLE_CHARACTERS = 80


def load_model(checkpoint, preset, max_seq_length=None):
    """Reads the encoder of a model, and what makes its inputs.

    Args:
        checkpoint: str or None. A checkpoint.
        preset: str or None. The name of a preset, instead.
        max_seq_length: int. Most tokens in an input; None is as many as the model has positions.

    Returns:
        A pair of `BertEncoder` and `BertPreprocessor`, which takes [MASK] in a text for the special token.

    Raises:
        FileNotFoundError, ValueError: if there is no such model, it has no vocabulary, or too few positions.
    """
    from keras_bert.models.pretrainer import BertPretrainer
    from keras_bert.text.preprocessor import BertPreprocessor
    from keras_bert.weights.preset_names import resolve_preset

    path = resolve_preset(preset) if preset else checkpoint
    # A pretrainer's tokenizer knows [MASK] in a text; of its heads nothing is asked, so that they may be random.
    pretrainer = BertPretrainer.from_checkpoint(path)
    positions = pretrainer.encoder.max_position_embeddings
    if pretrainer.preprocessor is None:
        raise ValueError(f"{path} has no vocab.txt, without which texts have no tokens; put the model's own beside it")
    if max_seq_length is not None and max_seq_length > positions:
        raise ValueError(f"--max_seq_length={max_seq_length} is beyond the {positions} positions of the model")
    return pretrainer.encoder, BertPreprocessor(pretrainer.preprocessor.tokenizer, max_seq_length or positions)


def choose_layers(given, number):
    """The layers to show.

    Args:
        given: list of str, as the flag has them; None is all.
        number: int. How many layers the model has.

    Returns:
        list of int, ascending.

    Raises:
        ValueError: if one is not a layer of the model.
    """
    if given is None:
        return list(range(number))
    names = {str(layer): layer for layer in range(number)}
    if not given or not names.keys() >= set(given):
        raise ValueError(
            f"--layers={','.join(given)}: the layers of this model are 0 (the lowest) to {number - 1}; "
            "give some of them, with commas between"
        )
    return sorted({names[layer] for layer in given})


def read_attention(encoder, preprocessor, texts, layers):
    """Runs an encoder on a text or a pair, and keeps the attention weights.

    Args:
        encoder: `BertEncoder`.
        preprocessor: `BertPreprocessor` of the encoder.
        texts: a list of one or two str.
        layers: list of int.

    Returns:
        A pair: `Attention` without any padding, and int, how many tokens were cut off as too many.

    Raises:
        ValueError: if a text has no tokens, or there would be more weights than a page can hold.
    """
    tokenizer = preprocessor.tokenizer
    for flag, text, length in zip(("--text", "--text_b"), texts, tokenizer.tokenize(texts).row_lengths(), strict=False):
        if not length:
            raise ValueError(f"{flag}={text!r} has no tokens; give some words")
    ids, counts = preprocessor.with_token_counts(tuple([text] for text in texts) if len(texts) > 1 else texts)
    length = int(ids["padding_mask"].numpy().sum())
    check_size(len(layers), encoder.num_attention_heads, length)

    scores = encoder(ids, return_attention_scores=True)["attention_scores"]
    token_ids = ids["token_ids"][0, :length]
    special = np.isin(token_ids, [tokenizer.cls_id, tokenizer.sep_id])
    attention = Attention(
        tokens=[token.decode() for token in tokenizer.id_to_token(token_ids).numpy()],
        segment_ids=ids["segment_ids"][0, :length].numpy().tolist(),
        special=np.flatnonzero(special).tolist(),
        layers=layers,
        weights=np.stack([scores[layer][0, :, :length, :length] for layer in layers]),
    )
    return attention, int(counts[0]) - length


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""

    def define(kind, *arguments, **options):
        getattr(flags, f"DEFINE_{kind}")(*arguments, flag_values=values, **options)

    define("string", "checkpoint", None, "Folder or file of the model, such as runs/rte/model.")
    define("string", "preset", None, "Name of a preset, instead.")
    define("string", "text", None, "The text, or the first of a pair.", required=True)
    define("string", "text_b", None, "The second text of a pair.")
    define("string", "output", None, "File to write, ending in .html.", required=True)
    define("list", "layers", None, "Layers to show, 0 the lowest, with commas between them; by default all.")
    define("integer", "max_seq_length", None, "Most tokens, with [CLS] and [SEP]; by default the model's positions.", 3)
    define("string", "title", None, "Heading of the page; by default the beginning of the text.")
    define("bool", "overwrite", False, "Whether to replace an output that exists.")
    flags.mark_flags_as_mutual_exclusive(["checkpoint", "preset"], required=True, flag_values=values)


def run(values):
    """Checks the flags, runs the model, writes the page, and says on standard error what was written."""
    if not values.output.endswith((".html", ".htm")):
        raise ValueError(f"--output={values.output} must end in .html, by which a browser knows the page")
    check_output(values.output, values.overwrite)

    from keras_bert.io.atomic_write import atomic_text_file
    from keras_bert.io.row_errors import plural

    encoder, preprocessor = load_model(values.checkpoint, values.preset, values.max_seq_length)
    layers = choose_layers(values.layers, encoder.num_hidden_layers)
    texts = [values.text] if values.text_b is None else [values.text, values.text_b]
    attention, cut = read_attention(encoder, preprocessor, texts, layers)

    name = values.preset or values.checkpoint
    facts = (
        f"{plural(len(layers), 'layer')} of {plural(encoder.num_attention_heads, 'head')}, "
        f"{plural(len(attention.tokens), 'token')}" + (f"; {cut} more did not fit" if cut else "")
    )
    page = build_page(
        attention,
        values.title or textwrap.shorten(" / ".join(texts), _TITLE_CHARACTERS, placeholder=" …"),
        f"{name}: {facts}",
        texts,
    )
    with atomic_text_file(values.output, values.overwrite) as file:
        file.write(page)
    print(f"{facts}; written to {values.output} ({os.path.getsize(values.output) / 1e6:.2f} MB)", file=sys.stderr)


def main(argv):
    """Runs the program; what is wrong with the model, the texts or the flags is said in one line."""
    if argv[1:]:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}; give texts by --text and --text_b, each in quotes")
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # without the list of all weights that were read
    try:
        run(flags.FLAGS)
    except (OSError, TypeError, ValueError) as error:
        sys.exit(f"tools.attention: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
