"""CRC-32C (Castagnoli) in NumPy, the checksum in TensorFlow's files."""

import functools

import numpy as np

_POLYNOMIAL = np.uint32(0x82F63B78)  # bits reversed
_NUM_LANES = 4096  # equal parts of the data whose checksums are computed side by side
_MASK_DELTA = 0xA282EAD8


def _remainders(values: np.ndarray, num_bits: int) -> np.ndarray:
    """Returns the states that follow the given states after so many zero bits."""
    for _ in range(num_bits):
        values = (values >> np.uint32(1)) ^ np.where(values & np.uint32(1), _POLYNOMIAL, np.uint32(0))
    return values


_BYTES: list[int] = _remainders(np.arange(256, dtype=np.uint32), 8).tolist()


def crc32c(data: bytes | memoryview | np.ndarray) -> int:
    """Returns the CRC-32C of bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    array = np.frombuffer(data, np.uint8)
    num_words = array.size // (4 * _NUM_LANES)
    head = array.size - num_words * 4 * _NUM_LANES
    state = 0xFFFFFFFF
    for byte in array[:head].tolist():
        state = _BYTES[(state ^ byte) & 0xFF] ^ (state >> 8)
    if num_words:
        lanes = array[head:].view("<u4").reshape(_NUM_LANES, num_words)
        state = int(_join_lanes(np.uint32(state), _states_of_lanes(lanes), 4 * num_words))
    return state ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | memoryview | np.ndarray) -> int:
    """Returns the CRC-32C of bytes in the form that TensorFlow stores."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _states_of_lanes(lanes: np.ndarray) -> np.ndarray:
    """Returns the state after the words of each lane [lanes, words], from the state 0."""
    high, low = _word_tables()
    states = np.zeros(len(lanes), np.uint32)
    for word in range(lanes.shape[1]):
        states ^= lanes[:, word]
        states = low[states & np.uint32(0xFFFF)] ^ high[states >> np.uint32(16)]
    return states


@functools.cache
def _word_tables() -> tuple[np.ndarray, np.ndarray]:
    """Returns the states that follow the high half of a word, and the low half, by their value."""
    high = _remainders(np.arange(2**16, dtype=np.uint32), 16)
    return high, _remainders(high, 16)


def _join_lanes(state: np.uint32, states: np.ndarray, num_bytes: int) -> np.uint32:
    """Returns the state after all lanes of `num_bytes` each, given the state before and the state of each from 0."""
    zero_byte = _remainders(np.uint32(1) << np.arange(32, dtype=np.uint32), 8)
    zeros = _power(zero_byte, num_bytes)
    state = _apply(_power(zeros, len(states)), np.array([state]))[0]
    while len(states) > 1:
        states = _apply(zeros, states[::2]) ^ states[1::2]
        zeros = _apply(zeros, zeros)
    return np.uint32(state ^ states[0])


def _apply(columns: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Multiplies states by a matrix over GF(2), given the image of each bit."""
    bits = (states[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return np.bitwise_xor.reduce(np.where(bits, columns, np.uint32(0)), axis=1)


def _power(columns: np.ndarray, exponent: int) -> np.ndarray:
    result = np.uint32(1) << np.arange(32, dtype=np.uint32)
    while exponent:
        if exponent & 1:
            result = _apply(columns, result)
        columns, exponent = _apply(columns, columns), exponent >> 1
    return result
