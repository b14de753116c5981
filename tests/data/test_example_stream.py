import pytest

from keras_bert.data.example_stream import ExampleStream


def test_every_pass_reads_anew():
    passes = []

    def read():
        passes.append(1)
        yield {"text": "a"}
        yield {"text": "b"}

    stream = ExampleStream(read, "a source")
    assert not passes
    assert list(stream) == list(stream) == [{"text": "a"}, {"text": "b"}]
    first, second = iter(stream), iter(stream)
    assert next(first) == next(second)
    assert len(passes) == 4
    assert repr(stream) == "ExampleStream(a source)"


def test_no_examples_are_an_error():
    with pytest.raises(ValueError, match="a source: no row can be used"):
        list(ExampleStream(lambda: iter([]), "a source"))
