"""What an exported span labeler answers to: questions and contexts in, answers with their places out."""

import tensorflow as tf

from keras_bert.models.serving import text_signatures
from keras_bert.text.question_preprocessor import find_answers

TEXT_NAMES = ("question", "context")
WARMUP_TEXTS = (
    {"question": "What?", "context": "A warm-up."},
    {"question": "What is the second text?", "context": "A second text, which is somewhat longer than the first one."},
)


def serving_signatures(labeler, n_best, max_answer_length, null_threshold):
    """The functions that an exported span labeler offers.

    Args:
        labeler: a `BertSpanLabeler` with a preprocessor.
        n_best, max_answer_length, null_threshold: as for `answer_in_graph`.

    Returns:
        dict of signature name to `(function, {input name: tf.TensorSpec})`, as `text_signatures` says; `tokens` answers
        `start_logits` and `end_logits`, float32 [windows, length].
    """

    def from_texts(texts):
        return answer_in_graph(labeler, texts["question"], texts["context"], n_best, max_answer_length, null_threshold)

    return text_signatures(labeler, TEXT_NAMES, lambda ids: labeler(ids, training=False), from_texts)


def answer_in_graph(labeler, questions, contexts, n_best, max_answer_length, null_threshold):
    """Answers questions from their contexts, in the graph.

    Args:
        labeler: a `BertSpanLabeler` with a preprocessor.
        questions, contexts: string tensors [batch].
        n_best: int. Starts and ends of a window that are looked at, and answers that are kept.
        max_answer_length: int, tokens.
        null_threshold: float, or None where every question has an answer. The answer is "" where the null score is
            greater than the best score by more than this.

    Returns:
        dict: `answer` string [batch], `score` and `null_score` float32 [batch], `start_byte`, `end_byte`,
        `start_character`, `end_character` int32 [batch], all of them 0 with the answer ""; and with `n_best_` before
        their names, in the plural, the best answers [batch, n_best], without the null answer.
    """
    prepared = labeler.preprocessor(questions, contexts)
    logits = labeler(prepared.inputs, training=False)
    found = find_answers(
        prepared, contexts, logits["start_logits"], logits["end_logits"], n_best, max_answer_length
    )._asdict()
    null_scores = found.pop("null_scores")
    found = {"answers": found.pop("texts"), **found}
    best = {name.removesuffix("s"): values[:, 0] for name, values in found.items()}
    if null_threshold is not None:
        is_null = null_scores - best["score"] > null_threshold
        score = best["score"]
        best = {name: tf.where(is_null, tf.zeros_like(values), values) for name, values in best.items()}
        best["score"] = score
    return {**best, "null_score": null_scores, **{f"n_best_{name}": values for name, values in found.items()}}
