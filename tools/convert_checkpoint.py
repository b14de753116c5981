"""Converts the weights, labels and tokenizer of a BERT from one file format to another.

    python -m tools.convert_checkpoint --input=uncased_L-12_H-768_A-12 --output=bert_base --format=hugging_face

The input is whatever `from_preset` takes: the name of a preset, hf://owner/name, or the path of a file or folder in one
of the formats that docs/checkpoints.md lists; its format is recognised. Weights are copied, not computed, so that
converting there and back gives the same numbers. --push also uploads the output with a model card.
"""

from absl import app, flags

from tools.program import flag_definer, run_program

_FORMATS = ("hugging_face", "google", "keras_hub")
_TYPES = ("float32", "bfloat16", "int8")


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    define = flag_definer(values)
    define("string", "input", None, "Name of a preset, hf://owner/name, or path of a file or folder.")
    define("string", "output", None, "Folder to write; it must not exist.")
    define("enum", "format", "hugging_face", _FORMATS, "Format of the output.")
    define("enum", "dtype", "float32", _TYPES, "Type of the stored weights.")
    define("string", "push", None, "Repository on the Hugging Face Hub to upload the output to, as owner/name.")
    flags.mark_flags_as_required(["input", "output"], flag_values=values)


def run(values):
    """Converts the weights, and uploads them if asked to."""
    from keras_bert.models.pretrained import convert_checkpoint
    from keras_bert.weights.hub import check_repository, push_folder
    from keras_bert.weights.model_card import write_model_card

    if values.push:
        check_repository(values.push)  # before anything is written
    folder = convert_checkpoint(values.input, values.output, values.format, values.dtype)
    print(f"wrote {folder} in the format {values.format}")
    if values.push:
        write_model_card(folder, values.push)
        print(f"uploaded to {push_folder(folder, values.push)}")


def main(argv):
    """Runs the program."""
    run_program("convert_checkpoint", run, argv, "give --input and --output")


if __name__ == "__main__":
    define_flags()
    app.run(main)
