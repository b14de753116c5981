"""SQuAD from its files to answers, in questions per second: windows, training with and without length buckets, answers
by the model and by its export."""

import itertools

from benchmarks.timing import exported_signature, load_head, median_seconds, time_trainer

_SERVING_BATCH_SIZE = 16
_NUM_WARM_UP_STEPS = 10


def measure(values):
    """Measures questions per second of every step; `values` are the flags of the suite."""
    from keras_bert.data.batching import BUCKET_STEP
    from keras_bert.data.formats.squad_files import read_squad
    from keras_bert.data.tokenized_questions import tokenize_questions
    from keras_bert.models.span_labeler import BertSpanLabeler

    model = load_head(BertSpanLabeler, values.init_checkpoint, seed=values.seed, dtype=values.precision)

    def make_windows():
        return tokenize_questions(read_squad(values.train_file, to_train=True), model.preprocessor, to_train=True)

    tokenized = make_windows()
    num_questions, num_windows = len(tokenized.questions), len(tokenized.windows)
    figures = {"windows ex/s": num_questions / median_seconds(make_windows, repeats=3, warm_ups=0)}
    for name, bucket_step in (("train", BUCKET_STEP), ("unbucketed", None)):
        seconds = time_training(model, tokenized.windows, values, bucket_step)
        figures[f"{name} ex/s"] = values.batch_size * values.steps * num_questions / num_windows / seconds
    asked = list(itertools.islice(read_squad(values.eval_file), values.questions or None))
    figures["answer ex/s"] = len(asked) / time_answering(model, asked)
    figures["serve ex/s"] = len(asked) / time_serving(model, asked, values.precision)
    return figures, f"{num_questions} questions in {num_windows} windows; {len(asked)} are answered"


def time_training(model, windows, values, bucket_step):
    from keras_bert.data.batching import BatchPlan

    plan = BatchPlan(windows.lengths, values.batch_size, bucket_step=bucket_step, seed=values.seed)
    return time_trainer(model, windows, plan, _NUM_WARM_UP_STEPS, values.steps)


def time_answering(model, questions):
    from keras_bert.data.formats.squad_predictions import answer_questions
    from keras_bert.data.tokenized_questions import tokenize_questions

    def answer():
        tokenized = tokenize_questions(questions, model.preprocessor)
        return answer_questions(tokenized, *model.predict_logits(tokenized.windows), model.preprocessor.tokenizer)

    return median_seconds(answer, repeats=1, warm_ups=1)


def time_serving(model, questions, precision):
    """Returns the time to answer questions by the exported model, in batches in the order of the questions."""
    import tensorflow as tf

    batches = []
    for start in range(0, len(questions), _SERVING_BATCH_SIZE):
        rows = questions[start : start + _SERVING_BATCH_SIZE]
        batches.append({name: tf.constant([getattr(row, name) for row in rows]) for name in ("question", "context")})
    with exported_signature(model, precision) as serve:

        def answer():
            for batch in batches:
                serve(**batch)["answer"].numpy()

        return median_seconds(answer, 1, warm_ups=1)


PROGRAMS = {"keras_bert": measure}
