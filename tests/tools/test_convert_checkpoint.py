import numpy as np
import pytest
from absl import flags

from keras_bert.weights.checkpoint_reader import read_checkpoint
from tests.toys import toy_classifier, toy_encoder
from tools import convert_checkpoint


@pytest.fixture
def convert(capsys):
    def run(source, output, *options):
        values = flags.FlagValues()
        convert_checkpoint.define_flags(values)
        values(["convert_checkpoint", f"--input={source}", f"--output={output}", *options])
        convert_checkpoint.run(values)
        return read_checkpoint(output), capsys.readouterr().out

    return run


def test_converting_to_every_format_and_back_changes_nothing(convert, tmp_path):
    arguments = {"hidden_act": "gelu_new", "initializer_range": 0.02}
    source = toy_classifier(encoder_arguments=arguments).save_checkpoint(tmp_path / "0")
    original = read_checkpoint(source)
    for number, name in enumerate(("google", "keras_hub", "hugging_face"), start=1):
        converted, output = convert(source, tmp_path / str(number), f"--format={name}")
        assert output == f"wrote {tmp_path / str(number)} in the format {name}\n"
        assert converted.source == {"google": "google_bert"}.get(name, name)
        assert converted.arrays.keys() == original.arrays.keys()
        for path, array in converted.arrays.items():
            np.testing.assert_array_equal(array, original.arrays[path])
        assert converted.encoder_arguments == original.encoder_arguments
        source = tmp_path / str(number)


def test_refuses_what_a_format_cannot_hold(convert, tmp_path):
    source = toy_encoder(hidden_act="gelu").save_checkpoint(tmp_path / "0")
    with pytest.raises(ValueError, match="gelu"):
        convert(source, tmp_path / "1", "--format=google")
    with pytest.raises(ValueError, match="preset 'absent' is unknown"):
        convert("absent", tmp_path / "1")
    with pytest.raises(ValueError, match="owner/name"):
        convert(source, tmp_path / "1", "--push=no_owner")
    assert not (tmp_path / "1").exists()
