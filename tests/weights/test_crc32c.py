import numpy as np
import pytest

from keras_bert.weights.crc32c import crc32c, masked_crc32c


def slow_crc32c(data):
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_values_of_rfc_3720():
    for data, expected in [(bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)]:
        assert crc32c(data) == expected
    assert crc32c(b"") == 0 and masked_crc32c(b"") == 0xA282EAD8


@pytest.mark.parametrize("size", [1, 4 * 4096 - 1, 4 * 4096, 8 * 4096 + 5])
def test_equals_the_definition(size):
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    assert crc32c(data) == crc32c(data.tobytes()) == slow_crc32c(data.tolist())
