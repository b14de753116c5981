"""Inputs and checkpoints of Hugging Face's models, whose outputs are stored as goldens."""

import shutil

import numpy as np

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(195))]


def read_ids(folder, prefix=""):
    """Returns the inputs of the goldens in a folder, by this package's names."""
    inputs = np.load(folder / "inputs.npz")
    names = {"token_ids": "input_ids", "segment_ids": "token_type_ids", "padding_mask": "attention_mask"}
    return {name: inputs[prefix + stored] for name, stored in names.items()}


def copy_checkpoint(golden, folder):
    """Copies a tiny checkpoint, and adds a vocabulary of 200 words."""
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(golden / name, folder / name)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return folder
