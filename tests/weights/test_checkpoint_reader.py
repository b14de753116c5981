import numpy as np
import pytest

from keras_bert.weights import hugging_face
from keras_bert.weights.checkpoint_reader import read_checkpoint


def test_accepts_folders_strings_and_files(hugging_face_folder):
    folder = hugging_face_folder.write()
    for path in (str(folder), folder, folder / "model.safetensors"):
        assert read_checkpoint(path).path == folder / "model.safetensors"
    (folder / "model.safetensors").rename(folder / "best.safetensors")
    assert read_checkpoint(folder / "best.safetensors").source == "hugging_face"


def test_folder_without_weights_is_listed(tmp_path):
    for name in ("config.json", "notes.txt"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(FileNotFoundError) as caught:
        read_checkpoint(tmp_path)
    for part in (*hugging_face.OPENERS, "*ckpt*.index", "bert_config.json"):
        assert part in str(caught.value)
    assert f"{tmp_path} contains ['config.json', 'notes.txt']" in str(caught.value)
    for index in range(48):
        (tmp_path / f"file{index}").write_text("")
    with pytest.raises(FileNotFoundError, match="and 30 more"):
        read_checkpoint(tmp_path)


def test_rejects_missing_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file or folder"):
        read_checkpoint(tmp_path / "absent" / "bert_model.ckpt")
    with pytest.raises(FileNotFoundError, match=r"no weights found.* contains \[\]"):
        read_checkpoint(tmp_path / "bert_model.ckpt")
    with pytest.raises(FileNotFoundError, match=r"is the name of a preset, .* pass it to `from_preset`"):
        read_checkpoint("bert_tiny_novels")


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_refuses_weights_that_are_not_finite(hugging_face_folder, number):
    name = "encoder.layer.1.attention.self.key.weight"
    tensors = hugging_face_folder.tensors
    prefix = "bert." if f"bert.{name}" in tensors else ""
    tensors[prefix + name][2, 1] = number
    folder = hugging_face_folder.write()
    message = rf"model.safetensors: 1 of \d+ weights are NaN or infinite: .*{name}.*: 1 of 48 numbers.*allow_nonfinite"
    with pytest.raises(ValueError, match=message):
        read_checkpoint(folder)
    array = read_checkpoint(folder, allow_nonfinite=True).arrays
    fused = array["encoder/transformer_block_1/self_attention/query_key_value/kernel"]
    assert np.flatnonzero(~np.isfinite(fused)).tolist() == [1 * 12 + 4 + 2]
