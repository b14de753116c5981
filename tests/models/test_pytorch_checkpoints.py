"""Outputs of models in files of PyTorch, compared with those that PyTorch computes."""

import numpy as np
import pytest

from keras_bert.models.classifier import BertClassifier
from keras_bert.models.encoder import BertEncoder
from keras_bert.models.pretrainer import BertPretrainer


@pytest.mark.parametrize("case", ["float32", "float16", "bfloat16", "views", "wrapped", "pretraining_tied"])
@pytest.mark.parametrize("file_format", ["zip", "legacy"])
def test_outputs_equal_those_of_pytorch(shared, file_format, case):
    folder = shared / "golden" / "formats" / f"pytorch_bin_{file_format}" / case
    expected = np.load(folder / "expected.npz")
    ids = {name: expected[name] for name in ("token_ids", "segment_ids", "padding_mask")}
    mask = ids["padding_mask"] == 1
    encoder = BertEncoder.from_checkpoint(folder)
    outputs = encoder(ids, return_hidden_states=True)
    found = {"pooled_output": outputs["pooled_output"], "sequence_output": outputs["sequence_output"][mask]}
    found["hidden_states"] = np.stack(outputs["hidden_states"])[:, mask]
    if case == "pretraining_tied":
        pretrainer = BertPretrainer.from_checkpoint(folder)
        assert not pretrainer.checkpoint_report.random
        heads = pretrainer(ids)
        found |= {"mlm_logits": heads["masked_logits"][mask], "nsp_logits": heads["next_sentence_logits"]}
    else:
        classifier = BertClassifier.from_checkpoint(folder, sequence_length=17)
        assert classifier.labels == ["negative", "neutral", "positive"]
        assert not classifier.checkpoint_report.random
        found["logits"] = classifier(ids)
    compared = found.keys() & set(expected.files)
    assert len(compared) >= 3
    for name in compared:
        wanted = expected[name]
        if name == "hidden_states":
            wanted = wanted[:, mask]
        elif wanted.shape[:2] == mask.shape:
            wanted = wanted[mask]
        np.testing.assert_allclose(found[name], wanted, atol=1e-5)
