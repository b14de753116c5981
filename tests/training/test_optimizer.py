"""BertAdamW against the original's goldens and a slow reference, and under Keras' fit, strategies, saving and XLA."""

import contextlib
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert.training.optimizer import BertAdamW
from keras_bert.training.schedule import WarmupSchedule
from tests.reference import optimizer as reference
from tests.training.embedding_model import STEPS, make_dataset, make_model

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


def random_gradients(rng, shapes=SHAPES, scale=1.0):
    return {path: (scale * rng.normal(size=shape)).astype("float32") for path, shape in shapes.items()}


def test_equals_the_original_on_golden_data(shared):
    golden = np.load(shared / "golden/optimizer/adamw_seed0.npz")
    settings = json.loads((shared / "golden/optimizer/adamw_seed0.json").read_text())
    names = settings["variable_names"]
    variables = list(make_variables({path: golden[f"init_{key}"] for key, path in names.items()}).values())
    schedule = WarmupSchedule(settings["init_lr"], settings["num_train_steps"], settings["num_warmup_steps"])
    optimizer = BertAdamW(schedule)
    norms = []
    for step in range(settings["steps_run"] + 1):
        if step in golden["snapshot_steps"] and step > 0:
            row = list(golden["snapshot_steps"]).index(step)
            kept = {"var": variables, "m": slots(optimizer, "momentum"), "v": slots(optimizer, "velocity")}
            for kind, values in kept.items():
                for key, value in zip(names, values, strict=True):
                    np.testing.assert_allclose(value.numpy(), golden[f"{kind}_{key}"][row], rtol=0, atol=1e-6)
        if step < settings["steps_run"]:
            assert float(optimizer.learning_rate) == pytest.approx(golden["lr"][step], abs=1e-9)
            gradients = [tf.constant(golden[f"grad_{key}"][step]) for key in names]
            norms.append(float(optimizer.apply(gradients, variables)))
    np.testing.assert_allclose(norms, golden["global_norm"], rtol=1e-6)
    assert int(optimizer.iterations.numpy()) == settings["steps_run"]


@pytest.mark.parametrize("bias_correction", [False, True])
@pytest.mark.parametrize("clip_norm", [None, 1.0, 1e3])
def test_equals_the_reference_on_random_sequences(bias_correction, clip_norm):
    rng = np.random.default_rng(3)
    values = random_gradients(rng, scale=0.1)
    variables = make_variables(values)
    slow = reference.AdamWeightDecay(
        values, {"table", "dense/kernel"}, clip_norm=clip_norm, bias_correction=bias_correction
    )
    optimizer = BertAdamW(1e-3, clip_norm=clip_norm, bias_correction=bias_correction)
    for step in range(20):
        gradients = random_gradients(rng, scale=0.0 if step == 7 else 10.0 ** rng.uniform(-4, 1))
        norm = optimizer.apply([tf.constant(g) for g in gradients.values()], list(variables.values()))
        slow.apply(gradients, 1e-3)
        assert float(norm) == pytest.approx(reference.global_norm(gradients.values()), rel=1e-6)
    for path, variable in variables.items():
        np.testing.assert_allclose(variable.numpy(), slow.variables[path], rtol=0, atol=1e-6)


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
        assert float(norm) == pytest.approx(golden["gradient_norms"][step], rel=1e-6)
        for name, variable in zip(names, variables, strict=True):
            np.testing.assert_allclose(variable.numpy(), golden[f"after/{name}"][step], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("rate", "steps"), [(5e-3, 60), (1e-2, 100)])
def test_does_not_drift_from_the_original_at_high_rates(rate, steps):
    rng = np.random.default_rng(5)
    values = random_gradients(rng, scale=0.1)
    variables = make_variables(values)
    slow = reference.AdamWeightDecay(values, {"table", "dense/kernel"})
    optimizer = BertAdamW(rate)
    for _ in range(steps):
        gradients = random_gradients(rng)
        optimizer.apply([tf.constant(gradient) for gradient in gradients.values()], list(variables.values()))
        slow.apply(gradients, rate)
    for path, variable in variables.items():
        np.testing.assert_allclose(variable.numpy(), slow.variables[path], rtol=0, atol=1e-6)


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
    for from_sparse, from_dense in zip(*results, strict=True):
        np.testing.assert_array_equal(from_sparse, from_dense)


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


def test_other_exclusions_from_decay():
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
    everything = [*variables, *optimizer.variables]
    before = [variable.numpy() for variable in everything]

    def apply(gradients):
        return optimizer.apply(gradients, variables)

    apply = tf.function(apply) if compiled else apply
    with pytest.raises(tf.errors.InvalidArgumentError, match="norm of the gradients is not finite, so no weight was"):
        apply([tf.ones([2, 2]), tf.constant([1.0, bad])])
    for variable, old in zip(everything, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)


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
def test_apply_if_finite_skips_a_bad_step_without_a_trace(bad):
    rng = np.random.default_rng(3)
    good = [random_gradients(rng), random_gradients(rng)]
    spoilt = {path: value.copy() for path, value in random_gradients(rng).items()}
    loss = np.nan if bad == "loss" else 1.0
    if bad == "gradient":
        spoilt["dense/kernel"][1, 1] = np.inf
    starts = random_gradients(rng)
    results = []
    for sequence in (good, [good[0], spoilt, good[1]]):
        variables = make_variables(starts)
        optimizer = BertAdamW(0.1, bias_correction=True)
        for gradients in sequence:
            values = [tf.constant(value) for value in gradients.values()]
            report = optimizer.apply_if_finite(values, list(variables.values()), loss if gradients is spoilt else 1.0)
            assert bool(report["is_finite"]) == (gradients is not spoilt)
            finite = np.isfinite(report["squared_norms"])
            assert finite.tolist() == [
                not (bad == "gradient" and gradients is spoilt and name == "dense/kernel") for name in SHAPES
            ]
        results.append([variable.numpy() for variable in optimizer.variables + list(variables.values())])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_apply_if_finite_divides_by_the_loss_scale():
    rng = np.random.default_rng(4)
    gradients, starts = random_gradients(rng), random_gradients(rng)
    results = []
    for scale in (1.0, 1024.0):
        variables = make_variables(starts)
        optimizer = BertAdamW(0.1)
        values = [tf.constant(value * scale) for value in gradients.values()]
        report = optimizer.apply_if_finite(values, list(variables.values()), loss_scale=tf.constant(scale))
        results.append((float(report["norm"]), *(variable.numpy() for variable in variables.values())))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_follows_the_schedule_and_equals_a_loop(jit_compile):
    rates = []
    schedule = WarmupSchedule(1e-3, STEPS, 3)
    model = make_model(BertAdamW(schedule), jit_compile=jit_compile)
    record = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: rates.append(float(model.optimizer.learning_rate))
    )
    model.fit(make_dataset(), shuffle=False, verbose=0, callbacks=[record])
    assert rates == pytest.approx([float(schedule(step)) for step in range(STEPS)])
    assert int(model.optimizer.iterations.numpy()) == STEPS

    again, optimizer = make_model(), BertAdamW(schedule)
    for ids, labels in make_dataset():
        with tf.GradientTape() as tape:
            loss = again.compute_loss(y=labels, y_pred=again(ids))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, again.trainable_variables), again.trainable_variables, strict=True)
        )
    for ours, other in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=1e-6)


def test_a_constant_learning_rate_can_be_set():
    optimizer = BertAdamW()
    assert float(optimizer.learning_rate) == pytest.approx(5e-5)
    optimizer.learning_rate = 1e-5
    assert float(optimizer.learning_rate) == pytest.approx(1e-5)


def test_learning_rate_factors():
    rng = np.random.default_rng(6)
    gradients, starts = random_gradients(rng), random_gradients(rng)
    moved = {}
    for factors in ([], [("table", 0.25), (r"(^|/)dense/", 0.5), ("kernel", 0.0)]):
        variables = make_variables(starts)
        optimizer = BertAdamW(0.1, learning_rate_factors=factors)
        optimizer.apply([tf.constant(value) for value in gradients.values()], list(variables.values()))
        moved[len(factors)] = {path: variable.numpy() - starts[path] for path, variable in variables.items()}
    # The first expression that is found counts; the decay of the weights goes with the rate.
    expected = {"table": 0.25, "dense/kernel": 0.5, "dense/bias": 0.5, "layer_norm/gamma": 1.0}
    for path, factor in expected.items():
        np.testing.assert_allclose(moved[3][path], factor * moved[0][path], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("factors", "error", "message"),
    [
        ([("table", -1.0)], ValueError, "at least 0 and finite"),
        (["table"], TypeError, "pairs of a regular expression and a number"),
        ([("(", 1.0)], ValueError, "not a regular expression"),
    ],
)
def test_refuses_learning_rate_factors(factors, error, message):
    with pytest.raises(error, match=message):
        BertAdamW(learning_rate_factors=factors)


def test_config_keeps_every_argument():
    optimizer = BertAdamW(
        WarmupSchedule(1e-4, 100, decay="linear"),
        weight_decay=0.02,
        beta_1=0.8,
        beta_2=0.99,
        epsilon=1e-7,
        clip_norm=None,
        bias_correction=True,
        exclude_from_weight_decay=["bias$"],
        learning_rate_factors=[("embeddings", 0.5)],
        name="mine",
    )
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again, BertAdamW)
    assert again.get_config() == optimizer.get_config()
    assert again.get_config()["learning_rate"]["config"]["decay"] == "linear"
    assert len(again.get_config()) == 10


def train_and_compare(model, again):
    """Trains both for eight more steps; they must stay equal bit by bit."""
    for other in (model, again):
        other.fit(make_dataset(), shuffle=False, verbose=0)
    assert int(again.optimizer.iterations.numpy()) == 2 * STEPS
    for ours, others in zip(model.variables, again.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), others.numpy())


def trained_model():
    model = make_model(BertAdamW(WarmupSchedule(1e-3, 20)))
    model.fit(make_dataset(), shuffle=False, verbose=0)
    return model


def test_state_survives_a_keras_file(tmp_path):
    model = trained_model()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(again.optimizer, BertAdamW)
    train_and_compare(model, again)


def test_state_survives_a_tensorflow_checkpoint(tmp_path):
    model = trained_model()
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(tmp_path / "checkpoint"))
    again = make_model(BertAdamW(WarmupSchedule(1e-3, 20)))
    again.optimizer.build(again.trainable_variables)
    tf.train.Checkpoint(model=again, optimizer=again.optimizer).read(path).assert_consumed()
    for ours, others in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), others.numpy())
    train_and_compare(model, again)


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
    np.testing.assert_allclose(slots(optimizer, "momentum")[0].numpy(), [0.05, -0.05], rtol=1e-6)
    assert kernel.numpy()[0] < 1.0 < kernel.numpy()[1]
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again.inner_optimizer, BertAdamW)


@pytest.mark.parametrize(
    "arguments,error,message",
    [
        ({"beta_1": 1.0}, ValueError, r"beta_1 must be in \[0, 1\), got 1.0"),
        ({"beta_2": -0.1}, ValueError, "beta_2 must be in"),
        ({"epsilon": 0.0}, ValueError, "epsilon must be greater than 0"),
        ({"weight_decay": -0.01}, ValueError, "weight_decay must be a number of at least 0"),
        ({"clip_norm": 0.0}, ValueError, "None for no clipping; got 0.0"),
        ({"learning_rate": -1e-5}, ValueError, "learning_rate must be at least 0"),
        ({"learning_rate": "fast"}, ValueError, "learning_rate"),
        ({"exclude_from_weight_decay": "bias"}, TypeError, r"Write \('bias',\)"),
        ({"exclude_from_weight_decay": ["bias("]}, ValueError, r"'bias\(', which is not a regular expression"),
    ],
)
def test_refuses_arguments_out_of_range(arguments, error, message):
    with pytest.raises(error, match=message):
        BertAdamW(**arguments)


def test_refuses_low_precision_and_unknown_variables():
    with pytest.raises(TypeError, match="mixed_bfloat16"):
        BertAdamW().build([keras.Variable([1.0], dtype="bfloat16", name="kernel")])
    optimizer = BertAdamW()
    optimizer.build([keras.Variable([1.0], name="kernel")])
    with pytest.raises(ValueError, match=r"built without these variables: \['other'\]"):
        optimizer.apply([tf.ones([1])], [keras.Variable([1.0], name="other")])


def test_refuses_calls_outside_a_replica():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        kernel = keras.Variable([1.0], name="kernel")
        optimizer = BertAdamW()
        with pytest.raises(RuntimeError, match=r"strategy\.run"):
            optimizer.apply([tf.ones([1])], [kernel])
