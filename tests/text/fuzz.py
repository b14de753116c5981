"""Byte strings that are hard to tokenize."""

WORDS = ["the", "un", "able", "Re", "é", "naïve", "ΟΔΟΣ", "1", "-", "I", "İ"]
CONTEXTUAL = "ΣΣσςİIß'’.·\u00ad\u0345\u0300\u034f\U0001d165\U0001d16d\u302e\u0f71\u0f72ǅK가\u1100\u1161"
SPECIAL = [b"[CLS]", b"[MASK]", b"[mask]", b"[UNK]", b"[SEP]", b"[[PAD]]", b"[MA\xc2\xadSK]", b"[CLS"]
LONG = "aéα一가.𐐀"


def fuzzed_bytes(generator, code_points):
    """Makes a byte string from a `random.Random` and a list of assigned code points."""
    parts = []
    for _ in range(generator.randrange(1, 30)):
        kind = generator.random()
        if kind < 0.3:
            parts.append(chr(generator.choice(code_points)).encode())
        elif kind < 0.4:
            parts.append(generator.choice(CONTEXTUAL).encode())
        elif kind < 0.5:
            parts.append(b" ")
        elif kind < 0.6:
            parts.append(bytes([generator.randrange(128, 256)]))
        elif kind < 0.63:
            parts.append(generator.choice(SPECIAL))
        elif kind < 0.64:
            parts.append(generator.choice(LONG).encode() * generator.choice([60, 100, 199, 200, 201, 300]))
        else:
            parts.append(generator.choice(WORDS).encode())
    return b"".join(parts)


def invalid_bytes(generator):
    """Makes a short byte string with many truncated, overlong and surrogate sequences."""
    leads = [0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xF8, 0xFE, 0xFF]
    trails = [0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBB, 0xBF]
    whole = [character.encode() for character in "é€😀\ufeff\ufffd\uffff\ufdd0\U0010ffffaz \0"]
    kinds = [whole, [bytes([lead]) for lead in leads], [bytes([trail]) for trail in trails]]
    return b"".join(generator.choice(generator.choice(kinds)) for _ in range(generator.randrange(12)))


# Words of about 200 characters, the limit of the original, and a longer run of several words.
LONG_TEXTS = [letter * count for letter in LONG for count in (199, 200, 201, 801)] + ["!".join(["a" * 150] * 3)]
