import pytest
from absl import app, flags, logging

from keras_bert.models.pretrainer import BertPretrainer
from tests.tools.program_flags import parse_flags
from tests.toys import toy_encoder, toy_preprocessor
from tools import fill_mask


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    pretrainer = BertPretrainer(toy_encoder(), seed=1)
    return pretrainer.save_checkpoint(tmp_path_factory.mktemp("fill") / "model", toy_preprocessor().tokenizer)


def test_prints_words_and_probabilities(checkpoint, capsys):
    texts = ["a [MASK] film", "[MASK] [MASK]", "good"]
    fill_mask.run(parse_flags(fill_mask, f"--checkpoint={checkpoint}", "--top=3"), texts)
    lines = capsys.readouterr().out.splitlines()
    expected = BertPretrainer.from_checkpoint(checkpoint).fill_masks(texts, 3)
    assert lines[0] == "a [MASK] film"
    assert lines[1:4] == [f"  {100 * probability:5.1f}%  {word}" for word, probability in expected[0][0]]
    assert lines[4:6] == ["[MASK] [MASK]", "  [MASK] 1"]
    assert lines[9] == "  [MASK] 2"
    assert lines[-2:] == ["good", "  has no [MASK]"]
    assert len(lines) == 4 + 9 + 2


def test_a_model_without_the_head_is_refused(tmp_path):
    folder = toy_encoder().save_checkpoint(tmp_path / "encoder", toy_preprocessor().tokenizer)
    with pytest.raises(ValueError, match=r"encoder has no masked-LM head; give a pre-trained model"):
        fill_mask.run(parse_flags(fill_mask, f"--checkpoint={folder}"), ["[MASK]"])


@pytest.mark.parametrize("arguments", [[], ["--checkpoint=a", "--preset=b"], ["--checkpoint=a", "--top=0"]])
def test_invalid_flags_are_refused(arguments):
    with pytest.raises(flags.IllegalFlagValueError):
        parse_flags(fill_mask, *arguments)


def test_program_prints_errors_in_one_line(checkpoint, tmp_path, monkeypatch, capsys):
    verbosity = logging.get_verbosity()
    values = parse_flags(fill_mask, f"--checkpoint={tmp_path / 'missing'}")
    flags.DEFINE_integer("verbosity", -1, "", flag_values=values)
    monkeypatch.setattr(flags, "FLAGS", values)
    with pytest.raises(app.UsageError, match="no texts given"):
        fill_mask.main(["fill_mask"])
    with pytest.raises(SystemExit, match=r"^tools.fill_mask: [^\n]*missing"):
        fill_mask.main(["fill_mask", "a"])
    values.checkpoint = str(checkpoint)
    fill_mask.main(["fill_mask", "a [MASK] film"])
    logging.set_verbosity(verbosity)
    assert len(capsys.readouterr().out.splitlines()) == 6
