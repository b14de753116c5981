"""Predicts the masked tokens of texts with a pre-trained model.

    python -m tools.fill_mask --checkpoint=runs/tiny/model "It was a [MASK] night."

A checkpoint is a folder in the format of Hugging Face (such as model/ of a run of tasks.pretrain) or a checkpoint of
google-research/bert; --preset names one that this package knows.
"""

import sys

from absl import app, flags

from tools.program import hide_info_logs


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_string("checkpoint", None, "Folder or file of the model.", flag_values=values)
    flags.DEFINE_string("preset", None, "Name of a preset, instead of --checkpoint.", flag_values=values)
    flags.DEFINE_integer("top", 5, "Number of words to print per [MASK].", lower_bound=1, flag_values=values)
    flags.mark_flags_as_mutual_exclusive(["checkpoint", "preset"], required=True, flag_values=values)


def describe(text, masks):
    """Returns the lines for a text and the (word, probability) pairs of each of its masks."""
    if not masks:
        return [text, "  has no [MASK]"]
    lines = [text]
    for number, words in enumerate(masks, start=1):
        if len(masks) > 1:
            lines.append(f"  [MASK] {number}")
        lines += [f"  {100 * probability:5.1f}%  {word}" for word, probability in words]
    return lines


def run(values, texts):
    """Loads the model and prints the predictions for each text."""
    from keras_bert.models.pretrainer import BertPretrainer

    if values.preset:
        pretrainer = BertPretrainer.from_preset(values.preset)
    else:
        pretrainer = BertPretrainer.from_checkpoint(values.checkpoint)
    if any(name.startswith("masked_lm/") for name in pretrainer.checkpoint_report.random):
        raise ValueError(
            f"{values.preset or values.checkpoint} has no masked-LM head; give a pre-trained model, such as the folder "
            "model/ of a run of tasks.pretrain"
        )
    for text, masks in zip(texts, pretrainer.fill_masks(texts, values.top), strict=True):
        print("\n".join(describe(text, masks)))


def main(argv):
    """Runs the program; errors in the model are printed in one line."""
    if not argv[1:]:
        raise app.UsageError('no texts given; add them after the flags, each in quotes: "It was a [MASK] night."')
    hide_info_logs()
    try:
        run(flags.FLAGS, argv[1:])
    except (OSError, ValueError) as error:
        sys.exit(f"tools.fill_mask: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
