import keras
import pytest

import keras_bert
from keras_bert.io import processor

SIZES = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}
X86 = "processor\t: 0\nflags\t\t: fpu avx512f {}\nbugs\t\t:\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd {}\n"


@pytest.fixture
def warnings(tmp_path, monkeypatch):
    """Returns the warnings logged when encoders are created on a processor."""

    def warnings(cpu_info, precisions, devices=("cpu:0",)):
        logged = []
        if cpu_info is not None:
            (tmp_path / "cpuinfo").write_text(cpu_info)
        monkeypatch.setattr(processor, "_CPU_INFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(keras.distribution, "list_devices", lambda: list(devices))
        monkeypatch.setattr(processor.logging, "warning", lambda message, *values: logged.append(message % values))
        processor.warn_if_bfloat16_is_slow.cache_clear()
        for precision in precisions:
            keras_bert.BertEncoder(6, dtype=precision, **SIZES)
        return logged

    yield warnings
    processor.warn_if_bfloat16_is_slow.cache_clear()


@pytest.mark.parametrize("cpu_info", [X86.format("avx512_vnni"), ARM.format("")])
def test_warns_once_of_bfloat16_without_instructions_for_it(warnings, cpu_info):
    (warning,) = warnings(cpu_info, ["mixed_bfloat16", "mixed_bfloat16"])
    assert "float32 is faster" in warning
    assert warnings(cpu_info, ["float32", "mixed_float16"]) == []


@pytest.mark.parametrize(
    ("cpu_info", "devices"),
    [
        (X86.format("avx512_bf16"), ["cpu:0"]),
        (X86.format("amx_bf16 amx_tile"), ["cpu:0"]),
        (ARM.format("bf16"), ["cpu:0"]),
        ("", ["cpu:0"]),
        (None, ["cpu:0"]),
        (X86.format(""), ["gpu:0", "gpu:1"]),
        (X86.format(""), ["tpu:0"]),
    ],
)
def test_does_not_warn_where_bfloat16_is_fast_or_the_processor_unknown(warnings, cpu_info, devices):
    assert warnings(cpu_info, ["mixed_bfloat16"], devices) == []


def test_asks_the_backend_for_its_devices():
    assert any(device.startswith(("cpu", "gpu", "tpu")) for device in keras.distribution.list_devices())
