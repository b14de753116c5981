import os
import random
import sys

import pytest
import tensorflow as tf

from keras_bert.text.normalization import TextNormalizer, lower
from tests.forked import run as run_forked


def test_lower_cases_sigma_as_python_does():
    generator = random.Random(5)
    texts = ["ΟΔΟΣ", "Σ", "ΑΣ.", "ΑΣ.Α", "Α'Σ'", "ΣΣΣ ΣΑΣ", "ΑΣ一", "1Σ", "ΑΣ\u0301", "Α\U0001cf00Σ", "ⅠΣ", "ΣΑ"]
    texts += ["".join(generator.choices("ΣσςAaα1 .'’·\u00a8\u0301\u0345ʰªⓐ一-", k=8)) for _ in range(5_000)]
    lowered = [text.decode() for text in lower(tf.constant(texts)).numpy()]
    assert lowered == [text.lower() for text in texts]


@pytest.mark.parametrize("limit", [0, 1000])
def test_invalid_word_limit_is_refused(limit):
    with pytest.raises(ValueError, match="from 1 to 999"):
        TextNormalizer(True, True, max_characters_per_word=limit)


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["tr_TR.UTF-8", "lt_LT.UTF-8"])
def test_ignores_the_locale_of_the_process(locale):
    text = "TITLE I\u0307 J\u0301 \u00cc \u0130 \u012e\u0301"
    program = (
        "import tensorflow as tf; from keras_bert.text.normalization import TextNormalizer\n"
        f"text = tf.constant([{text!a}])\n"
        "print(ascii(tf.strings.lower(text, encoding='utf-8')[0].numpy().decode()))\n"
        "print(ascii(TextNormalizer(True, True)(text)[0].numpy()))"
    )
    environment = {**os.environ, "LC_ALL": locale, "LANG": locale}
    result = run_forked([sys.executable, "-c", program], env=environment)
    by_tensorflow, normalized = result.stdout.splitlines()
    assert by_tensorflow != ascii(text.lower())  # TensorFlow's own operation follows the locale
    assert normalized == "b'title i j i i i'"
