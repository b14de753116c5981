import pytest

from experiments import bert_mini_en
from keras_bert.models.classifier import BertClassifier
from keras_bert.models.text_embedder import BertTextEmbedder
from tests.tools.program_flags import parse_flags
from tests.toys import VOCABULARY, toy_encoder, toy_preprocessor, toy_reviews


@pytest.mark.slow
def test_makes_a_small_sentence_encoder(tmp_path, monkeypatch):
    teacher = toy_encoder(with_pooler=False, num_hidden_layers=3)
    folder = BertTextEmbedder(teacher, toy_preprocessor()).save_checkpoint(tmp_path / "teacher")
    texts, _ = toy_reviews(64)
    (tmp_path / "text.txt").write_text("\n".join(texts) + "\n")
    sizes = {"LAYERS": (0, 2), "VOCAB_SIZE": 20, "KEEP_FIRST": 0}
    sizes["RECIPE"] = {"max_seq_length": 16, "batch_size": 8, "epochs": 1.0}
    for name, value in sizes.items():
        monkeypatch.setattr(bert_mini_en, name, value)
    options = {"text_files": tmp_path / "text.txt", "run_dir": tmp_path / "run", "teacher": folder, "eval_texts": 8}
    preset = bert_mini_en.run(parse_flags(bert_mini_en, **options))
    embedder = BertTextEmbedder.from_checkpoint(preset)
    assert embedder.encoder.num_hidden_layers == 2
    assert len(embedder.preprocessor.tokenizer.vocabulary) <= 20 < len(VOCABULARY)
    assert not embedder.checkpoint_report.random
    classifier = BertClassifier.from_checkpoint(preset, labels=["a", "b"])
    assert (classifier.pooling, sorted(classifier.checkpoint_report.random)) == (
        "mean",
        ["logits/bias", "logits/kernel"],
    )
