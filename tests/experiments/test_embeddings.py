import json

import pytest

from experiments import embeddings
from tests.tools.program_flags import parse_flags
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews


@pytest.fixture
def data(tmp_path):
    """A folder with the data of all tasks."""
    texts, _ = toy_reviews(24)
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    sick, trecqa, squad = (tmp_path / name for name in ("sts/sick", "retrieval/trecqa", "squad/v1.1"))
    for folder in (sick, trecqa, squad):
        folder.mkdir(parents=True)
    rows = [f"{a}\t{b}\t{1 + number % 5}" for number, (a, b) in enumerate(pairs)]
    candidates = [f'"{pairs[number // 3][0]}",{int(number % 3 == 0)},"{b}"' for number, (_, b) in enumerate(pairs)]
    questions = [
        {"id": str(n), "question": a, "answers": [{"text": b[:3], "answer_start": 0}]} for n, (a, b) in enumerate(pairs)
    ]
    paragraphs = [{"context": b, "qas": [question]} for (_, b), question in zip(pairs, questions, strict=True)]
    for split in ("train", "test"):
        (sick / f"{split}.tsv").write_text("\n".join(["sentence_A\tsentence_B\trelatedness_score", *rows]) + "\n")
        (trecqa / f"{split}.csv").write_text("\n".join(["qtext,label,atext", *candidates]) + "\n")
    for split in ("train", "eval"):
        file = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
        (squad / f"{split}.json").write_text(json.dumps(file))
    return tmp_path


@pytest.mark.slow
def test_compares_all_tasks(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        embeddings, "RECIPES", {name: {"epochs": 1.0, "max_seq_length": 16} for name in embeddings.TASKS}
    )
    checkpoint = toy_encoder(with_pooler=False).save_checkpoint(tmp_path / "model", toy_preprocessor().tokenizer)
    options = {"data_dir": data, "run_dir": tmp_path / "run", "init_checkpoint": checkpoint, "num_seeds": 2}
    records = embeddings.run(parse_flags(embeddings, **options))
    assert [len(records[name]["trials"]) for name in embeddings.TASKS] == [2, 2, 2]
    table = capsys.readouterr().out
    assert table == (tmp_path / "run" / "table.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()[2:]]
    metrics = [line[2] for line in lines]
    assert metrics[:4] == [
        "spearman_correlation",
        "pearson_correlation",
        "mean_average_precision",
        "mean_reciprocal_rank",
    ]
    assert metrics[4:] == ["ndcg_at_10", "mrr_at_10", "recall_at_1", "recall_at_10"]
    before = records["SQuAD"]["before"]["dev/ndcg_at_10"]
    assert lines[4][4] == f"{100 * before:.2f}"
