import numpy as np

from experiments import quantization
from tests.toys import toy_classifier, toy_reviews


def test_rows_have_the_scores_in_points_and_their_changes():
    common = {"task": "SST-2, accuracy", "format": "onnx"}
    records = [
        {**common, "quantize": None, "score": 0.9, "bytes": 4_000_000},
        {**common, "quantize": "int8_dynamic", "score": 0.895, "bytes": 1_000_000},
    ]
    assert quantization.make_rows(records) == [
        {"format": "onnx", "quantize": None, "MB": "4.0", "SST-2, accuracy": "90.00"},
        {"format": "onnx", "quantize": "int8_dynamic", "MB": "1.0", "SST-2, accuracy": "89.50 (-0.50)"},
    ]


def test_reads_pairs(tmp_path):
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    (tmp_path / "test.tsv").write_text(f"{header}\n1\ta film\tthe plot\t3.3\tNEUTRAL\n2\ta\tb\t5\tNEUTRAL\n")
    assert quantization.read_pairs(tmp_path / "test.tsv") == (["a film", "a"], ["the plot", "b"], [3.3, 5.0])


def test_a_model_predicts_with_an_exported_file():
    classifier, texts = toy_classifier(), toy_reviews(5)[0]
    expected = classifier.predict_probabilities(texts)

    def compute(ids):
        assert set(ids) == {"token_ids", "segment_ids", "padding_mask"}
        return {"probabilities": classifier.probabilities(classifier(ids)).numpy()[:, ::-1]}

    quantization.run_in_runtime(classifier, compute)
    np.testing.assert_allclose(classifier.predict_probabilities(texts), expected[:, ::-1], atol=1e-6)
