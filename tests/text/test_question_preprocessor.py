import pytest
import tensorflow as tf

from tests.text.conftest import CONTEXTS, QUESTIONS


def test_offsets_locate_every_context_token(question_preprocessor):
    prepared = question_preprocessor(QUESTIONS, CONTEXTS)
    tokenizer = question_preprocessor.tokenizer
    for window, row in enumerate(prepared.rows.numpy()):
        offsets = zip(prepared.start_bytes[window].numpy(), prepared.end_bytes[window].numpy(), strict=True)
        for position, (first, last) in enumerate(offsets, int(prepared.context_starts[window])):
            token = tokenizer.id_to_token(int(prepared.inputs["token_ids"][window, position]))
            written = CONTEXTS[row].encode()[first:last].decode()
            assert token.removeprefix("##") == written.lower().replace("á", "a")
            assert prepared.may_end[window, position]
        assert tf.math.count_nonzero(prepared.may_end[window]) == len(prepared.start_bytes[window])
    assert tf.math.count_nonzero(prepared.may_start) == sum(map(len, tokenizer.tokenize(CONTEXTS)))


def test_unequal_numbers_are_refused(question_preprocessor):
    with pytest.raises(tf.errors.InvalidArgumentError, match="one context for each question"):
        question_preprocessor(["a", "b"], ["a"])
