"""SQuAD from its files to answers: windows, updates with and without length buckets, answers, and served ones."""

import itertools
import tempfile
import time
from pathlib import Path

from benchmarks.fine_tuning import WARM_UP_STEPS, make_head, seconds_of_updates
from benchmarks.timing import median_seconds

_BATCH_OF_SERVING = 16


def measure_ours(train_file, eval_file, init_checkpoint, updates, questions, batch_size, precision, seed):
    """Makes the windows of both files, trains a while, and answers some questions, by the model and as it is exported.

    Args:
        train_file, eval_file: str. SQuAD's JSON, version 1.1.
        init_checkpoint: str. A checkpoint, or the name of a preset.
        updates: int. Updates that count.
        questions: int. How many questions of `eval_file` are answered; 0 is all.
        batch_size: int. Windows in a batch of training.
        precision: str, the dtype policy. With mixed_bfloat16 the SavedModel is bfloat16.
        seed: int. Of the order of the windows, of the new layer and of dropout.

    Returns:
        A pair: dict of (name, unit) to float, and a remark. All are questions a second: `features` from the training
        file to all of its windows, `train` of updates on windows of like length, `unbucketed` on windows as they come,
        `answer` from texts to answers, `serve` the same by the SavedModel.
    """
    from keras_bert.data.formats.squad_files import read_squad
    from keras_bert.data.tokenized_questions import tokenize_questions
    from keras_bert.models.span_labeler import BertSpanLabeler

    model = make_head(BertSpanLabeler, init_checkpoint, seed=seed, dtype=precision)

    def features():
        return tokenize_questions(read_squad(train_file, to_train=True), model.preprocessor, to_train=True)

    tokenized = features()
    number = len(tokenized.questions)
    figures = {("features", "ex/s"): number / median_seconds(features, repeats=3, warm_ups=0)}
    for name, bucket_step in (("train", 8), ("unbucketed", None)):
        windows_per_second = train_speed(model, tokenized.windows, updates, batch_size, bucket_step, seed)
        figures[name, "ex/s"] = windows_per_second * number / len(tokenized.windows)
    asked = list(itertools.islice(read_squad(eval_file), questions or None))
    figures["answer", "ex/s"] = answer_speed(model, asked)
    figures["serve", "ex/s"] = serve_speed(model, asked, precision)
    return figures, f"{number} questions in {len(tokenized.windows)} windows; {len(asked)} are answered"


def train_speed(model, windows, updates, batch_size, bucket_step, seed):
    """Windows a second of updates, without those that trace the step."""
    from keras_bert.data.batching import BatchPlan

    plan = BatchPlan(windows.lengths, batch_size, bucket_step=bucket_step, seed=seed)
    return batch_size * updates / seconds_of_updates(model, windows, plan, updates + WARM_UP_STEPS)


def answer_speed(model, questions):
    """Questions a second, from their texts to their answers."""
    from keras_bert.data.formats.squad_predictions import answer_questions
    from keras_bert.data.tokenized_questions import tokenize_questions

    def answer():
        tokenized = tokenize_questions(questions, model.preprocessor)
        return answer_questions(tokenized, *model.predict_logits(tokenized.windows), model.preprocessor.tokenizer)

    return len(questions) / median_seconds(answer, repeats=1, warm_ups=1)


def serve_speed(model, questions, precision):
    """Questions a second of the exported model, in batches as they come."""
    import tensorflow as tf

    parts = [questions[start : start + _BATCH_OF_SERVING] for start in range(0, len(questions), _BATCH_OF_SERVING)]
    batches = [
        {name: tf.constant([getattr(question, name) for question in part]) for name in ("question", "context")}
        for part in parts
    ]
    with tempfile.TemporaryDirectory() as folder:
        saved = model.export(Path(folder) / "1", dtype="bfloat16" if precision == "mixed_bfloat16" else precision)
        serve = tf.saved_model.load(saved).signatures["serving_default"]

        def answer_all():
            for batch in batches:
                serve(**batch)["answer"].numpy()

        serve(**batches[0])
        started = time.perf_counter()
        answer_all()
        return len(questions) / (time.perf_counter() - started)


PROGRAMS = {"keras_bert": measure_ours}
