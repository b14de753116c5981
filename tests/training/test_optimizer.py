import contextlib
import itertools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.schedule import WarmupSchedule
from tests.reference import optimizer as reference
from tests.tolerances import TRAINING_LIMIT, assert_close
from tests.training.models import STEPS, embedding_batches, embedding_model

SHAPES = {"table": (5, 4), "dense/kernel": (4, 3), "dense/bias": (3,), "layer_norm/gamma": (3,)}


def make_variables(values):
    variables = {}
    for path, value in values.items():
        *scopes, name = path.split("/")
        with contextlib.ExitStack() as stack:
            for scope in scopes:
                stack.enter_context(keras.name_scope(scope))
            variables[path] = keras.Variable(value, name=name)
    return variables


def slots(optimizer, name):
    """Returns the variables of one slot, in the order of the model's variables."""
    return [variable for variable in optimizer.variables if variable.path.endswith(f"_{name}")]


def random_gradients(rng, scale=1.0):
    return {path: (scale * rng.normal(size=shape)).astype("float32") for path, shape in SHAPES.items()}


def tensors(gradients):
    return [tf.constant(gradient) for gradient in gradients.values()]


def assert_equal(variables, expected):
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_equals_the_original_on_golden_data(shared):
    golden = np.load(shared / "golden/optimizer/adamw_seed0.npz")
    settings = json.loads((shared / "golden/optimizer/adamw_seed0.json").read_text())
    names = settings["variable_names"]
    variables = list(make_variables({path: golden[f"init_{key}"] for key, path in names.items()}).values())
    schedule = WarmupSchedule(settings["init_lr"], settings["num_train_steps"], settings["num_warmup_steps"])
    optimizer = BertAdamW(schedule)
    for step in range(settings["steps_run"] + 1):
        if step in golden["snapshot_steps"] and step > 0:
            row = list(golden["snapshot_steps"]).index(step)
            kept = {"var": variables, "m": slots(optimizer, "momentum"), "v": slots(optimizer, "velocity")}
            for kind, values in kept.items():
                assert_close(values, [golden[f"{kind}_{key}"][row] for key in names], limit=TRAINING_LIMIT)
        if step < settings["steps_run"]:
            assert_close(optimizer.learning_rate, golden["lr"][step], magnitude=settings["init_lr"])
            gradients = [tf.constant(golden[f"grad_{key}"][step]) for key in names]
            assert_close(optimizer.apply(gradients, variables), golden["global_norm"][step], num_terms=18)
    assert int(optimizer.iterations.numpy()) == settings["steps_run"]


HIGH_RATES = [(False, 1.0, 5e-3, 60), (False, 1.0, 1e-2, 100)]


@pytest.mark.parametrize(
    ("bias_correction", "clip_norm", "rate", "steps"),
    [*itertools.product([False, True], [None, 1.0, 1e3], [1e-3], [20]), *HIGH_RATES],
)
def test_equals_the_reference_on_random_sequences(bias_correction, clip_norm, rate, steps):
    is_high = rate > 1e-3
    rng = np.random.default_rng(5 if is_high else 3)
    values = random_gradients(rng, scale=0.1)
    variables = make_variables(values)
    decayed = {"table", "dense/kernel"}
    slow = reference.AdamWeightDecay(values, decayed, clip_norm=clip_norm, bias_correction=bias_correction)
    optimizer = BertAdamW(rate, clip_norm=clip_norm, bias_correction=bias_correction)
    for step in range(steps):
        scale = 1.0 if is_high else 0.0 if step == 7 else 10.0 ** rng.uniform(-4, 1)
        gradients = random_gradients(rng, scale=scale)
        norm = optimizer.apply(tensors(gradients), list(variables.values()))
        slow.apply(gradients, rate)
        assert_close(norm, reference.global_norm(gradients.values()), num_terms=38)
    assert_close(variables, slow.variables, limit=TRAINING_LIMIT)


@pytest.mark.parametrize("seed", [1, 2])
def test_bias_correction_equals_pytorch(shared, seed):
    golden = np.load(shared / f"golden/optimizer/torch_adamw_seed{seed}.npz")
    names = ["kernel", "bias", "embedding"]
    variables = [keras.Variable(golden[f"initial/{name}"], name=name) for name in names]
    rate = tf.Variable(0.0)
    optimizer = BertAdamW(lambda: rate, bias_correction=True)
    for step, learning_rate in enumerate(golden["learning_rates"]):
        rate.assign(learning_rate)
        norm = optimizer.apply([tf.constant(golden[f"gradients/{name}"][step]) for name in names], variables)
        assert_close(norm, golden["gradient_norms"][step], num_terms=79)
        # The requirement for 100 steps is 2e-6.
        assert_close(variables, [golden[f"after/{name}"][step] for name in names], limit=2 * TRAINING_LIMIT)


def test_sums_repeated_rows_of_sparse_gradients():
    rows = np.array([[1.0], [1.0], [3.0]], "float32")
    sparse = tf.IndexedSlices(tf.constant(rows), tf.constant([0, 0, 2]), tf.constant([4, 1]))
    dense = tf.constant([[2.0], [0.0], [3.0], [0.0]])
    results = []
    for gradient in (sparse, dense):
        table = keras.Variable(np.ones([4, 1], "float32"), name="table")
        optimizer = BertAdamW(0.1)
        assert float(optimizer.apply([gradient], [table])) == pytest.approx(13**0.5)
        results.append([table.numpy(), *(variable.numpy() for variable in optimizer.variables)])
    assert_equal(*results)


def test_variables_without_gradient_stay_unchanged():
    values = {"dense/kernel": np.ones([2, 2], "float32"), "frozen/kernel": np.ones([2], "float32")}
    kernel, frozen = make_variables(values).values()
    optimizer = BertAdamW(0.1)
    with pytest.warns(UserWarning, match="frozen/kernel"):
        norm = optimizer.apply([tf.ones([2, 2]), None], [kernel, frozen])
    assert float(norm) == pytest.approx(2.0)
    np.testing.assert_array_equal(frozen.numpy(), [1.0, 1.0])  # not decayed either
    assert kernel.numpy().max() < 0.9
    with pytest.raises(ValueError, match="all gradients are None"):
        optimizer.apply([None, None], [kernel, frozen])
    assert optimizer.apply([]) is None


@pytest.mark.parametrize(
    "path,decayed",
    [
        ("bert_encoder/embeddings/word_embeddings/table", True),
        ("bert_encoder/layer_0/self_attention/query_key_value/kernel", True),
        ("bert_encoder/layer_0/self_attention_layer_norm/beta", False),
        ("masked_lm_head/output_bias", False),
        ("LayerNorm/gamma", False),
        ("bias", False),
        ("unbiased_model/dense/kernel", True),
        ("bias_study/layer_norm_ablation/kernel", True),
        ("gamma/kernel", True),
        ("dense/unbias", True),
    ],
)
def test_decays_kernels_and_embeddings_only(path, decayed):
    (variable,) = make_variables({path: [1.0]}).values()
    assert variable.path.endswith(path)
    assert BertAdamW().is_decayed(variable) is decayed
    assert BertAdamW().is_decayed(tf.Variable([1.0], name=path)) is decayed


def test_exclusions_from_decay_can_be_changed():
    kernel, bias = make_variables({"dense/kernel": [1.0], "dense/bias": [1.0]}).values()
    optimizer = BertAdamW(exclude_from_weight_decay=["dense/k"])
    assert [optimizer.is_decayed(kernel), optimizer.is_decayed(bias)] == [False, True]
    optimizer = BertAdamW()
    optimizer.exclude_from_weight_decay(var_list=[kernel])
    assert not optimizer.is_decayed(kernel)


@pytest.mark.parametrize(("bad", "compiled", "clip_norm"), [(np.nan, False, 1.0), (np.inf, True, None)])
def test_a_nonfinite_gradient_raises_and_changes_nothing(bad, compiled, clip_norm):
    values = {"dense/kernel": np.ones([2, 2], "float32"), "dense/bias": np.ones([2], "float32")}
    variables = list(make_variables(values).values())
    optimizer = BertAdamW(0.1, clip_norm=clip_norm)
    optimizer.apply([tf.ones([2, 2]), tf.ones([2])], variables)
    before = [variable.numpy() for variable in (*variables, *optimizer.variables)]
    apply = tf.function(lambda gradients: optimizer.apply(gradients, variables)) if compiled else optimizer.apply
    with pytest.raises(tf.errors.InvalidArgumentError, match="norm of the gradients is not finite, so no weight was"):
        apply([tf.ones([2, 2]), tf.constant([1.0, bad])])
    assert_equal([*variables, *optimizer.variables], before)


def test_a_nonfinite_gradient_changes_nothing_under_xla():
    kernel = keras.Variable(np.ones([2], "float32"), name="kernel")
    optimizer = BertAdamW(0.1)
    optimizer.build([kernel])

    @tf.function(jit_compile=True)
    def apply(gradient):
        return optimizer.apply([gradient], [kernel])

    assert not np.isfinite(apply(tf.constant([np.nan, 1.0])).numpy())
    np.testing.assert_array_equal(kernel.numpy(), [1.0, 1.0])
    np.testing.assert_array_equal(slots(optimizer, "velocity")[0].numpy(), [0.0, 0.0])
    assert optimizer.iterations.numpy() == 0


@pytest.mark.parametrize("bad", ["gradient", "loss"])
def test_apply_if_finite_skips_a_bad_step_completely(bad):
    rng = np.random.default_rng(3)
    first, last, spoilt, starts = (random_gradients(rng) for _ in range(4))
    loss = np.nan if bad == "loss" else 1.0
    if bad == "gradient":
        spoilt["dense/kernel"][1, 1] = np.inf
    results = []
    for sequence in ((first, last), (first, spoilt, last)):
        variables = list(make_variables(starts).values())
        optimizer = BertAdamW(0.1, bias_correction=True)
        for gradients in sequence:
            is_bad = gradients is spoilt
            report = optimizer.apply_if_finite(tensors(gradients), variables, loss if is_bad else 1.0)
            assert bool(report["is_finite"]) != is_bad
            expected = [not (is_bad and bad == "gradient" and name == "dense/kernel") for name in SHAPES]
            assert np.isfinite(report["squared_norms"]).tolist() == expected
        results.append([variable.numpy() for variable in (*optimizer.variables, *variables)])
    assert_equal(*results)


def test_apply_if_finite_divides_by_the_loss_scale():
    rng = np.random.default_rng(4)
    gradients, starts = random_gradients(rng), random_gradients(rng)
    results = []
    for scale in (1.0, 1024.0):
        variables = list(make_variables(starts).values())
        values = [gradient * scale for gradient in tensors(gradients)]
        report = BertAdamW(0.1).apply_if_finite(values, variables, loss_scale=tf.constant(scale))
        results.append([report["norm"][None], *variables])
    assert_close(*results)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_follows_the_schedule_and_equals_a_loop(jit_compile):
    rates = []
    schedule = WarmupSchedule(1e-3, STEPS, 3)
    model = embedding_model(BertAdamW(schedule), jit_compile=jit_compile)

    def record(batch, logs):
        rates.append(float(model.optimizer.learning_rate))

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_begin=record)]
    model.fit(embedding_batches(), shuffle=False, verbose=0, callbacks=callbacks)
    assert rates == pytest.approx([float(schedule(step)) for step in range(STEPS)])
    assert int(model.optimizer.iterations.numpy()) == STEPS

    again, optimizer = embedding_model(), BertAdamW(schedule)
    weights = again.trainable_variables
    for ids, labels in embedding_batches():
        with tf.GradientTape() as tape:
            loss = again.compute_loss(y=labels, y_pred=again(ids))
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    assert_close(model.get_weights(), again.get_weights(), limit=TRAINING_LIMIT)


def test_learning_rate_factors_scale_the_updates():
    rng = np.random.default_rng(6)
    gradients, starts = random_gradients(rng), random_gradients(rng)
    moved = {}
    for factors in ([], [("table", 0.25), (r"(^|/)dense/", 0.5), ("kernel", 0.0)]):
        variables = make_variables(starts)
        BertAdamW(0.1, learning_rate_factors=factors).apply(tensors(gradients), list(variables.values()))
        moved[len(factors)] = {path: variable.numpy() - starts[path] for path, variable in variables.items()}
    # The first expression that is found counts; the decay of the weights goes with the rate.
    expected = {"table": 0.25, "dense/kernel": 0.5, "dense/bias": 0.5, "layer_norm/gamma": 1.0}
    for path, factor in expected.items():
        assert_close(moved[3][path], factor * moved[0][path], magnitude=np.abs(starts[path]).max())


def test_config_keeps_every_argument():
    arguments = {"weight_decay": 0.02, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-7, "clip_norm": None}
    arguments |= {"bias_correction": True, "exclude_from_weight_decay": ["bias$"], "name": "mine"}
    arguments |= {"learning_rate_factors": [("embeddings", 0.5)]}
    optimizer = BertAdamW(WarmupSchedule(1e-4, 100, decay="linear"), **arguments)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again, BertAdamW)
    assert again.get_config() == optimizer.get_config()
    assert again.get_config()["learning_rate"]["config"]["decay"] == "linear"
    assert len(again.get_config()) == 10
    assert float(BertAdamW().learning_rate) == pytest.approx(5e-5)


@pytest.mark.parametrize("file", ["model.keras", "checkpoint"])
def test_training_resumes_exactly_from_a_keras_file_and_a_tensorflow_checkpoint(tmp_path, file):
    model = embedding_model(BertAdamW(WarmupSchedule(1e-3, 20)))
    model.fit(embedding_batches(), shuffle=False, verbose=0)
    if file == "checkpoint":
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(tmp_path / file))
        again = embedding_model(BertAdamW(WarmupSchedule(1e-3, 20)))
        again.optimizer.build(again.trainable_variables)
        tf.train.Checkpoint(model=again, optimizer=again.optimizer).read(path).assert_consumed()
    else:
        model.save(tmp_path / file)
        again = keras.saving.load_model(tmp_path / file)
        assert isinstance(again.optimizer, BertAdamW)
    assert_equal(again.optimizer.variables, model.optimizer.variables)
    for other in (model, again):
        other.fit(embedding_batches(), shuffle=False, verbose=0)
    assert int(again.optimizer.iterations.numpy()) == 2 * STEPS
    assert_equal(again.variables, model.variables)


def test_keras_loss_scaling_skips_an_overflow():
    kernel = keras.Variable(np.ones([2], "float32"), name="kernel")
    optimizer = keras.optimizers.LossScaleOptimizer(BertAdamW(0.1, weight_decay=0.0), initial_scale=4.0)
    optimizer.build([kernel])

    @tf.function
    def apply(gradient):
        optimizer.apply([gradient], [kernel])

    apply(tf.constant([np.inf, 1.0]))
    np.testing.assert_array_equal(kernel.numpy(), [1.0, 1.0])
    assert float(optimizer.dynamic_scale.numpy()) == 2.0
    apply(tf.constant([1.0, -1.0]))  # unscaled 0.5 and -0.5: not clipped
    assert_close(slots(optimizer, "momentum")[0], [0.05, -0.05])
    assert kernel.numpy()[0] < 1.0 < kernel.numpy()[1]
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again.inner_optimizer, BertAdamW)


@pytest.mark.parametrize(
    "arguments,error,message",
    [
        ({"beta_1": 1.0}, ValueError, r"beta_1 must be in \[0, 1\), got 1.0"),
        ({"beta_2": -0.1}, ValueError, "beta_2 must be in"),
        ({"epsilon": 0.0}, ValueError, "epsilon must be greater than 0"),
        ({"epsilon": np.inf}, ValueError, "finite, got inf"),
        ({"weight_decay": -0.01}, ValueError, "weight_decay must be a finite number of at least 0, got -0.01"),
        ({"weight_decay": np.inf}, ValueError, "finite number of at least 0, got inf"),
        ({"clip_norm": np.inf}, ValueError, "None for no clipping; got inf"),
        ({"clip_norm": 0.0}, ValueError, "None for no clipping; got 0.0"),
        ({"learning_rate": -1e-5}, ValueError, "learning_rate must be a finite number of at least 0"),
        ({"learning_rate": np.inf}, ValueError, "finite number of at least 0, got inf"),
        ({"learning_rate": "fast"}, ValueError, "learning_rate"),
        ({"exclude_from_weight_decay": "bias"}, TypeError, r"Write \('bias',\)"),
        ({"exclude_from_weight_decay": ["bias("]}, ValueError, r"'bias\(', which is not a regular expression"),
        ({"learning_rate_factors": [("table", -1.0)]}, ValueError, "at least 0 and finite"),
        ({"learning_rate_factors": ["table"]}, TypeError, "pairs of a regular expression and a number"),
        ({"learning_rate_factors": [("(", 1.0)]}, ValueError, "not a regular expression"),
    ],
)
def test_rejects_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        BertAdamW(**arguments)


def test_rejects_low_precision_and_unknown_variables():
    with pytest.raises(TypeError, match="mixed_bfloat16"):
        BertAdamW().build([keras.Variable([1.0], dtype="bfloat16", name="kernel")])
    optimizer = BertAdamW()
    optimizer.build([keras.Variable([1.0], name="kernel")])
    with pytest.raises(ValueError, match=r"built without these variables: \['other'\]"):
        optimizer.apply([tf.ones([1])], [keras.Variable([1.0], name="other")])


def test_rejects_calls_outside_a_replica():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        kernel = keras.Variable([1.0], name="kernel")
        optimizer = BertAdamW()
        with pytest.raises(RuntimeError, match=r"strategy\.run"):
            optimizer.apply([tf.ones([1])], [kernel])
