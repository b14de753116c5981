"""Writes the attention weights of a text, or of a pair of texts, as an interactive page for any browser.

    python -m tools.attention --preset=bert_tiny_novels --text="It was the best of times." --output=attention.html
    python -m tools.attention --checkpoint=runs/rte/model --text="It rains." --text_b="It is wet." --output=pair.html

--checkpoint is a folder in Hugging Face's format (such as model/ of a run) or a checkpoint of google-research/bert;
--preset is the name of a preset. [MASK] in a text is read as the special token.

The page is a single file that loads nothing. It takes 1.4 bytes per weight: for 12 layers of 12 heads 3 MB with 128
tokens and 50 MB with 512. The limit is 67 million weights; --layers and --max_seq_length reduce their number.
"""

import os
import sys
import textwrap

import numpy as np
from absl import app, flags

from tools.attention_page import Attention, build_page, check_size
from tools.output_file import check_output
from tools.program import flag_definer, hide_info_logs, run_program

_MAX_TITLE_LENGTH = 80


def load_model(checkpoint, preset, max_seq_length=None):
    """Loads a `BertEncoder` and its `BertPreprocessor` from a checkpoint or preset; the other one is None."""
    from keras_bert.models.pretrainer import BertPretrainer
    from keras_bert.text.preprocessor import BertPreprocessor
    from keras_bert.weights.preset_names import resolve_preset

    path = resolve_preset(preset) if preset else checkpoint
    # A pretrainer's tokenizer reads [MASK] in a text; its heads are not used, so they may be random.
    pretrainer = BertPretrainer.from_checkpoint(path)
    num_positions = pretrainer.encoder.max_position_embeddings
    if pretrainer.preprocessor is None:
        raise ValueError(f"{path} has no vocab.txt, which is needed to tokenize texts; add the vocabulary of the model")
    if max_seq_length is not None and max_seq_length > num_positions:
        raise ValueError(f"--max_seq_length={max_seq_length} exceeds the {num_positions} positions of the model")
    return pretrainer.encoder, BertPreprocessor(pretrainer.preprocessor.tokenizer, max_seq_length or num_positions)


def choose_layers(given, num_layers):
    """Returns the layers to show, ascending; `given` are the items of --layers, or None for all."""
    if given is None:
        return list(range(num_layers))
    layers = {str(layer): layer for layer in range(num_layers)}
    if not given or not layers.keys() >= set(given):
        raise ValueError(
            f"--layers={','.join(given)}: must be comma-separated layers of the model, 0 (the first) to "
            f"{num_layers - 1}"
        )
    return sorted({layers[layer] for layer in given})


def compute_attention(encoder, preprocessor, texts, layers):
    """Computes the attention weights of one or two texts."""
    tokenizer = preprocessor.tokenizer
    for flag, text, length in zip(("--text", "--text_b"), texts, tokenizer.tokenize(texts).row_lengths(), strict=False):
        if not length:
            raise ValueError(f"{flag}={text!r} has no tokens; give some words")
    ids, counts = preprocessor.with_token_counts(tuple([text] for text in texts) if len(texts) > 1 else texts)
    length = int(ids["padding_mask"].numpy().sum())
    check_size(len(layers), encoder.num_attention_heads, length)

    scores = encoder(ids, return_attention_scores=True)["attention_scores"]
    token_ids = ids["token_ids"][0, :length]
    is_special = np.isin(token_ids, [tokenizer.cls_id, tokenizer.sep_id])
    attention = Attention(
        tokens=[token.decode() for token in tokenizer.id_to_token(token_ids).numpy()],
        segment_ids=ids["segment_ids"][0, :length].numpy().tolist(),
        special=np.flatnonzero(is_special).tolist(),
        layers=layers,
        weights=np.stack([scores[layer][0, :, :length, :length] for layer in layers]),
    )
    return attention, int(counts[0]) - length


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("string", "checkpoint", None, "Folder or file of the model, such as runs/rte/model.")
    define("string", "preset", None, "Name of a preset, instead of --checkpoint.")
    define("string", "text", None, "The text, or the first of a pair.", required=True)
    define("string", "text_b", None, "The second text of a pair.")
    define("string", "output", None, "File to write, ending in .html.", required=True)
    define("list", "layers", None, "Comma-separated layers to show, 0 is the first; default: all.")
    define("integer", "max_seq_length", None, "Maximum number of tokens; default: the positions of the model.", 3)
    define("string", "title", None, "Heading of the page; default: the beginning of the text.")
    define("bool", "overwrite", False, "Replace an existing output.")
    flags.mark_flags_as_mutual_exclusive(["checkpoint", "preset"], required=True, flag_values=values)


def run(values):
    """Checks the flags, runs the model, writes the page, and reports on standard error."""
    if not values.output.endswith((".html", ".htm")):
        raise ValueError(f"--output={values.output} must end in .html, so that browsers open it as a page")
    check_output(values.output, values.overwrite)

    from keras_bert.io.atomic_write import atomic_text_file
    from keras_bert.io.row_errors import plural

    encoder, preprocessor = load_model(values.checkpoint, values.preset, values.max_seq_length)
    layers = choose_layers(values.layers, encoder.num_hidden_layers)
    texts = [values.text] if values.text_b is None else [values.text, values.text_b]
    attention, num_truncated = compute_attention(encoder, preprocessor, texts, layers)

    summary = (
        f"{plural(len(layers), 'layer')} of {plural(encoder.num_attention_heads, 'head')}, "
        f"{plural(len(attention.tokens), 'token')}" + (f"; {num_truncated} more truncated" if num_truncated else "")
    )
    page = build_page(
        attention,
        values.title or textwrap.shorten(" / ".join(texts), _MAX_TITLE_LENGTH, placeholder=" …"),
        f"{values.preset or values.checkpoint}: {summary}",
        texts,
    )
    with atomic_text_file(values.output, values.overwrite) as file:
        file.write(page)
    print(f"{summary}; written to {values.output} ({os.path.getsize(values.output) / 1e6:.2f} MB)", file=sys.stderr)


def main(argv):
    """Runs the program; errors of the model, the texts and the flags are printed without a traceback."""
    hide_info_logs()
    run_program(
        "attention", run, argv, "give texts by --text and --text_b, each in quotes", (OSError, TypeError, ValueError)
    )


if __name__ == "__main__":
    define_flags()
    app.run(main)
