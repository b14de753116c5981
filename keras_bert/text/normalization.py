"""Text normalization before WordPiece, as string operations of the TensorFlow graph.

Source: `BasicTokenizer` in google-research/bert `tokenization.py`.
"""

import tensorflow as tf

from keras_bert.io import special_tokens
from keras_bert.text.versions import load_tensorflow_text

tensorflow_text = load_tensorflow_text()

# Original BERT, tokenization.py (`max_input_chars_per_word`): a longer word becomes [UNK] as a whole.
MAXIMUM_CHARACTERS_PER_WORD = 200

# RE2, TensorFlow's regular expression engine, allows at most 1,000 repetitions.
LARGEST_WORD_LIMIT = 999

BYTES_PER_CHARACTER = 4  # at most, in UTF-8

# All white space that separates words: tab, line feed, carriage return, category Zs (except the space itself, which
# needs no replacement), and the line and paragraph separators at which Python's `str.split` splits, too.
_WHITE_SPACE = r"[\t\n\r\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}]"
_REMOVED = r"[\p{Cc}\p{Cf}\x{FFFD}]+"
_STRIPPED_MARKS = r"\p{Mn}+"
CHINESE = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}"
    r"\x{2B740}-\x{2B81F}\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
# The ASCII symbols listed count as punctuation in BERT though not in Unicode.
PUNCTUATION = r"\p{P}$+<=>^`|~"
# Each of these is a word of its own.
_SINGLE_CHARACTER_WORD = PUNCTUATION + CHINESE

# Separates words of the normalized text.
SEPARATOR_CHARACTER = f"[ {_SINGLE_CHARACTER_WORD}]"

# The Unicode properties Cased and Case_Ignorable, which determine the form of a lower-cased sigma. Characters with both
# count as ignorable.
_CASED = (
    r"\p{Lu}\p{Ll}\p{Lt}\x{AA}\x{BA}\x{2160}-\x{217F}\x{24B6}-\x{24E9}"
    r"\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}"
)
_CASE_IGNORABLE = (
    r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:\x{B7}\x{387}\x{55F}\x{5F4}\x{2018}\x{2019}\x{2024}\x{2027}"
    r"\x{FE13}\x{FE52}\x{FE55}\x{FF07}\x{FF0E}\x{FF1A}"
)

# Stand-ins for special tokens written in text during normalization. They are "tag" characters of category Cf, which are
# removed from every text first, so a text cannot contain its own.
SPECIAL_TOKEN_MARKERS = {token: chr(0xE0041 + index) for index, token in enumerate(special_tokens.SPECIAL_TOKENS)}


def clean(texts: tf.Tensor) -> tf.Tensor:
    """Replaces white space by spaces and removes control and format characters, NUL and U+FFFD (`_clean_text`)."""
    return tf.strings.regex_replace(tf.strings.regex_replace(texts, _WHITE_SPACE, " "), _REMOVED, "")


def lower(texts: tf.Tensor) -> tf.Tensor:
    """Lower-cases cleaned texts `[batch]` as Python's `str.lower` does, a word-final capital sigma included.

    The 40 capital letters that are new in Unicode 14 are not lower-cased: TensorFlow's tables are those of Unicode 13.
    """
    # Unicode lower-casing follows the locale of the process: a Turkish one turns "I" into a dotless i. Therefore ASCII
    # letters are lower-cased first, which ignores the locale.
    texts = tf.strings.lower(texts)
    rows = tf.where(tf.strings.regex_full_match(texts, "(?s).*Σ.*"))
    texts = tf.tensor_scatter_nd_update(texts, rows, _lower_sigmas(tf.gather_nd(texts, rows)))
    return tf.strings.lower(texts, encoding="utf-8")


def _lower_sigmas(texts: tf.Tensor) -> tf.Tensor:
    """Lower-cases capital sigmas, to the final form only after a cased character and not before one."""
    other = f"[^{_CASED}{_CASE_IGNORABLE}]"
    texts = tf.strings.regex_replace(texts, f"(^|{other})([{_CASE_IGNORABLE}]*)Σ", r"\1\2σ")
    texts = tf.strings.regex_replace(texts, f"Σ([{_CASE_IGNORABLE}]*)({other}|$)", r"ς\1\2")
    return tf.strings.regex_replace(texts, "Σ", "σ")


def decompose(texts: tf.Tensor) -> tf.Tensor:
    """Decomposes characters into base characters and marks (Unicode normalization form NFD)."""
    return tensorflow_text.normalize_utf8(texts, "NFD")


def strip_marks(texts: tf.Tensor) -> tf.Tensor:
    """Removes non-spacing marks (Unicode category Mn), the accents of decomposed texts."""
    return tf.strings.regex_replace(texts, _STRIPPED_MARKS, "")


class TextNormalizer:
    """Normalizes texts `[batch]` exactly as google-research/bert's `BasicTokenizer` does (`tokenization.py`).

    A word of more than `max_characters_per_word` characters is replaced by a run of letters that exceeds the limit
    `maximum_bytes_per_word` of the WordPiece tokenizer, so that it becomes `[UNK]`.
    """

    def __init__(
        self,
        lower_case: bool,
        strip_accents: bool,
        special_tokens_in_text: bool = False,
        max_characters_per_word: int = MAXIMUM_CHARACTERS_PER_WORD,
    ) -> None:
        if not 1 <= max_characters_per_word <= LARGEST_WORD_LIMIT:
            raise ValueError(
                f"max_characters_per_word must be from 1 to {LARGEST_WORD_LIMIT}. Received: {max_characters_per_word}. "
                f"Original BERT uses {MAXIMUM_CHARACTERS_PER_WORD}."
            )
        self.lower_case = lower_case
        self.strip_accents = strip_accents
        self.special_tokens_in_text = special_tokens_in_text
        self.max_characters_per_word = max_characters_per_word
        self.maximum_bytes_per_word = BYTES_PER_CHARACTER * max_characters_per_word

        # Printable ASCII and white space, without a word that is too long: such a text needs nothing but lower-casing.
        separators = r"\t\n\r -/:-@\\-`{-~" + ("" if special_tokens_in_text else r"\[")
        word = f"[0-9A-Za-z]{{0,{max_characters_per_word}}}"
        self._plain = f"(?:{word}[{separators}])*{word}"
        too_long = max_characters_per_word + 1
        self._holds_long_run = f"(?s).*[^ ]{{{too_long}}}.*"
        self._long_word = f"[^ ]{{{too_long},}}"
        # Longer than any word that WordPiece looks up, so [UNK] for every vocabulary.
        self._long_word_replacement = "a" * (self.maximum_bytes_per_word + 1)

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Normalizes a string tensor `[batch]` of any bytes to valid UTF-8."""
        plain = tf.strings.regex_full_match(texts, self._plain)
        rows = tf.where(tf.logical_not(plain))
        lowered = tf.strings.lower(texts) if self.lower_case else texts
        # Most rows of most corpora are plain, and the passes over the others dominate the time of tokenization.
        return tf.tensor_scatter_nd_update(lowered, rows, self._normalize_any(tf.gather_nd(texts, rows)))

    def _normalize_any(self, texts: tf.Tensor) -> tf.Tensor:
        # Invalid UTF-8 is removed first: tf.strings.lower would turn it into U+FFFD.
        texts = clean(tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore"))
        if self.special_tokens_in_text:
            for token, marker in SPECIAL_TOKEN_MARKERS.items():
                pattern = token.replace("[", r"\[").replace("]", r"\]")
                texts = tf.strings.regex_replace(texts, pattern, f" {marker} ")
        if self.lower_case:
            texts = lower(texts)
        if self.strip_accents:
            texts = strip_marks(decompose(texts))
        return self._replace_long_words(texts)

    def _replace_long_words(self, texts: tf.Tensor) -> tf.Tensor:
        rows = tf.where(tf.strings.regex_full_match(texts, self._holds_long_run))
        spaced = tf.strings.regex_replace(tf.gather_nd(texts, rows), f"([{_SINGLE_CHARACTER_WORD}])", r" \1 ")
        replaced = tf.strings.regex_replace(spaced, self._long_word, self._long_word_replacement)
        return tf.tensor_scatter_nd_update(texts, rows, replaced)
