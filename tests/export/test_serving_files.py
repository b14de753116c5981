import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_bert.export.serving_files import (
    MAX_WARMUP_REQUESTS,
    WARMUP_FILE,
    allowed_batch_sizes,
    max_batch_size,
    write_warmup_requests,
)

IDS = np.array([[2, 5, 3], [2, 3, 0]], "int32")


def logs(folder):
    records = tf.data.TFRecordDataset(str(folder / WARMUP_FILE)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in records]


def test_requests_are_read_back_in_order(tmp_path):
    texts = [b"one", b"\xff\x00"]
    write_warmup_requests(tmp_path, [("serving_default", {"text": texts}), ("tokens", {"token_ids": IDS})])
    assert (tmp_path / "assets.extra" / "tf_serving_warmup_requests").exists()
    first, second = (log.predict_log.request for log in logs(tmp_path))
    assert [first.model_spec.signature_name, second.model_spec.signature_name] == ["serving_default", "tokens"]
    assert tf.make_ndarray(first.inputs["text"]).tolist() == texts
    ids = tf.make_ndarray(second.inputs["token_ids"])
    np.testing.assert_array_equal(ids, IDS)
    assert ids.dtype == np.int32


def test_refuses_more_than_a_thousand_requests(tmp_path):
    requests = [("serving_default", {"text": ["a"]})] * MAX_WARMUP_REQUESTS
    write_warmup_requests(tmp_path, requests)
    assert len(logs(tmp_path)) == 1000
    with pytest.raises(ValueError, match="at most 1000 warm-up requests, got 1001"):
        write_warmup_requests(tmp_path, [*requests, requests[0]])


def test_batches_are_smaller_for_longer_rows():
    assert [max_batch_size(length) for length in (2, 128, 256, 384, 512, 100_000)] == [32, 32, 32, 21, 16, 1]
    assert [max_batch_size(length, inputs_per_row=4) for length in (128, 384, 100_000)] == [8, 5, 1]


def test_batches_are_filled_up_by_less_than_a_fifth():
    for largest in range(1, 200):
        sizes = allowed_batch_sizes(largest)
        assert sizes == sorted({*sizes}) and sizes[-1] == largest
        filled = [next(size for size in sizes if size >= rows) for rows in range(1, largest + 1)]
        assert max((size - rows) / size for rows, size in enumerate(filled, start=1)) < 1 / 5
        assert len(sizes) <= 8 + 4 * largest.bit_length()
