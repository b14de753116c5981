import gzip
import io
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from keras_bert.models.encoder import BertEncoder
from keras_bert.weights import tf_hub
from keras_bert.weights.checkpoint_reader import read_checkpoint
from tests.weights.tensor_bundles import make_object
from tests.weights.test_model_garden import make_encoder

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]


@pytest.fixture
def saved_model(tmp_path):
    return make_saved_model(tmp_path)


def make_saved_model(parent):
    """Writes a folder with the files of a SavedModel that are read."""
    folder = parent / "bert_en_uncased"
    for name in ("assets", "variables"):
        (folder / name).mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"not read")
    (folder / "assets" / "vocab.txt").write_text("\n".join(VOCABULARY))
    write_variables(folder, {"layer_with_weights-0": make_encoder(np.random.default_rng(0), True)}, np.bool_(False))
    return folder


def write_variables(folder, attributes, lower_case):
    make_object({**attributes, "do_lower_case": lower_case}).write(str(folder / "variables" / "variables"))


def pack(folder, *members, mode="w:gz"):
    """Packs a folder, and further members: names, or pairs of TarInfo and contents."""
    path = folder.with_name("model.tar.gz")
    with tarfile.open(path, mode) as archive:
        archive.add(folder, ".")
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_reproduces_the_outputs_of_the_original(shared):
    folder = shared / "golden" / "formats" / "tf_hub_v4"
    (archive,) = folder.glob("*.tar.gz")
    checkpoint = read_checkpoint(archive)
    expected = read_checkpoint(folder.parent / "google_tf1" / "encoder")
    assert (checkpoint.source, checkpoint.path, checkpoint.lower_case) == ("tf_hub", archive, True)
    assert checkpoint.vocabulary == tuple(expected.vocabulary.read_text().splitlines())
    assert checkpoint.encoder_arguments == expected.encoder_arguments and not checkpoint.unused
    assert checkpoint.arrays.keys() == expected.arrays.keys()
    for path, array in expected.arrays.items():
        np.testing.assert_array_equal(checkpoint.arrays[path], array)
    with np.load(folder / "expected.npz") as file:
        outputs = BertEncoder.from_checkpoint(archive)(
            {name: file[f"{name}"] for name in ("token_ids", "segment_ids", "padding_mask")}
        )
        mask = file["padding_mask"] == 1
        np.testing.assert_allclose(outputs["sequence_output"][mask], file["sequence_output"][mask], atol=1e-5)
        np.testing.assert_allclose(outputs["pooled_output"], file["pooled_output"], atol=1e-5)


def test_reads_folder_and_archive(saved_model):
    checkpoint, archived = read_checkpoint(saved_model), read_checkpoint(pack(saved_model))
    assert tf_hub.find(saved_model / "saved_model.pb") == saved_model == checkpoint.path
    arguments = checkpoint.encoder_arguments
    assert [arguments[name] for name in ("vocab_size", "hidden_size", "num_attention_heads")] == [7, 4, 2]
    assert [arguments[name] for name in ("num_hidden_layers", "intermediate_size", "type_vocab_size")] == [2, 6, 2]
    assert arguments["hidden_act"] == "gelu_new" and checkpoint.lower_case is False and not checkpoint.unused
    assert checkpoint.vocabulary == saved_model / "assets" / "vocab.txt"
    assert archived.vocabulary == tuple(VOCABULARY) and archived.encoder_arguments == arguments
    for path, array in checkpoint.arrays.items():
        np.testing.assert_array_equal(archived.arrays[path], array)


def test_settings_of_keras_are_honoured_or_refused(saved_model):
    settings = saved_model / "keras_metadata.pb"
    for text, activation in [("Text>gelu", "gelu_new"), ("relu", "relu")]:
        settings.write_text(f'..."inner_activation": "{text}", "norm_first": false')
        assert read_checkpoint(saved_model).encoder_arguments["hidden_act"] == activation
    for text, message in [
        ('"inner_activation": "swish"', "inner_activation must be one of .* found 'swish'"),
        ('"norm_first": true', "norm_first must be false"),
    ]:
        settings.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_checkpoint(saved_model)


def test_incomplete_folders_are_refused(saved_model):
    (saved_model / "assets" / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(ValueError, match=r"vocab.txt: expected 7 lines"):
        read_checkpoint(saved_model)
    write_variables(saved_model, {}, np.float32(1))
    with pytest.raises(ValueError, match="expected one encoder"):
        read_checkpoint(saved_model)
    tf.io.gfile.rmtree(str(saved_model / "variables"))
    with pytest.raises(FileNotFoundError, match="the folder 'variables' is not"):
        read_checkpoint(saved_model)
    (saved_model / "variables").symlink_to(saved_model.parent)
    with pytest.raises(ValueError, match="names 'variables', which is not a file or folder directly in"):
        read_checkpoint(saved_model)


def test_type_of_lower_case_is_checked(saved_model):
    encoder = {"layer_with_weights-0": make_encoder(np.random.default_rng(0), True)}
    write_variables(saved_model, encoder, np.float32(1))
    with pytest.raises(ValueError, match=r"do_lower_case must be one bool; found float32 of shape \[\]"):
        read_checkpoint(saved_model)


# === Hostile archives ===


def member(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


@pytest.mark.parametrize(
    ("hostile", "message"),
    [
        (member("../outside"), "is not in the folder"),
        (member("a/../../outside"), "is not in the folder"),
        (member("/tmp/outside"), "is not in the folder"),
        (member("assets/link", tarfile.SYMTYPE, "/etc/passwd"), "is a link or device"),
        (member("assets/link", tarfile.LNKTYPE, "saved_model.pb"), "is a link or device"),
        (member("device", tarfile.CHRTYPE), "is a link or device"),
        (member("pipe", tarfile.FIFOTYPE), "is a link or device"),
        (member("./assets/vocab.txt"), "occurs twice"),
        (member("other/saved_model.pb"), "2 files saved_model.pb"),
    ],
)
def test_members_of_archives_are_checked(saved_model, hostile, message):
    with pytest.raises(ValueError, match=rf"model.tar.gz: not an archive of a SavedModel \(.*{message}"):
        read_checkpoint(pack(saved_model, hostile))
    assert not (saved_model.parent / "outside").exists()


def test_sizes_of_archives_are_bounded(saved_model, monkeypatch):
    monkeypatch.setattr(tf_hub, "_MAX_UNPACKED", 2**16)
    assert read_checkpoint(pack(saved_model)).lower_case is False
    bomb = tarfile.TarInfo("zeros"), bytes(2**22)
    with pytest.raises(ValueError, match="it unpacks to more than 65536 bytes"):
        read_checkpoint(pack(saved_model, bomb, member("last")))
    long = tarfile.TarInfo("name")
    long.pax_headers = {"comment": "a" * 2**21}
    monkeypatch.setattr(tf_hub, "_MAX_UNPACKED", 2**27)
    with pytest.raises(ValueError, match="a header of 2097664 bytes"):
        read_checkpoint(pack(saved_model, (long, b"")))


def test_other_files_are_refused(saved_model):
    path = pack(saved_model)
    data = path.read_bytes()
    for content in (b"", b"text", data[: len(data) // 2], gzip.compress(b"a" * 600)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"model.tar.gz: not an archive of a SavedModel"):
            read_checkpoint(path)


def test_errors_of_archives_name_the_archive(saved_model):
    for content, message in [(b"\xff\n" * 7, "not UTF-8"), (b"[PAD]\n", "expected 7 lines")]:
        (saved_model / "assets" / "vocab.txt").write_bytes(content)
        path = pack(saved_model)
        with pytest.raises(ValueError, match=message) as caught:
            read_checkpoint(path)
        assert str(path) in str(caught.value) and "keras_bert_" not in str(caught.value)
    (saved_model / "assets" / "vocab.txt").unlink()
    assert read_checkpoint(pack(saved_model)).vocabulary is None
