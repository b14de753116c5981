import pytest

from experiments import few_shot
from tests.tools.program_flags import parse_flags
from tests.toys import toy_encoder, toy_preprocessor, toy_reviews


@pytest.fixture
def glue(tmp_path):
    """A folder with SST-2."""
    (tmp_path / "SST-2").mkdir()
    texts, names = toy_reviews(40)
    rows = [f"{text}\t{int(name == 'positive')}" for text, name in zip(texts, names, strict=True)]
    for split, lines in {"train": rows[:20], "dev": rows[20:]}.items():
        (tmp_path / "SST-2" / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return tmp_path


@pytest.mark.slow
def test_compares_both_methods_on_the_same_examples(glue, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(few_shot, "_MIN_STEPS", 1)
    monkeypatch.setattr(few_shot, "DATASETS", ("SST-2",))
    checkpoint = toy_encoder(with_pooler=False, max_position_embeddings=64).save_checkpoint(
        tmp_path / "model", toy_preprocessor().tokenizer
    )
    options = {"data_dir": glue, "run_dir": tmp_path / "run", "init_checkpoint": checkpoint, "num_seeds": 2}
    records = few_shot.run(parse_flags(few_shot, examples_per_class="2,64", max_pairs=32, **options))
    train = (glue / "SST-2" / "train.tsv").read_text()
    rarest = min(train.count(f"\t{label}\n") for label in (0, 1))
    assert list(records) == [f"SST-2, {n}, {name}" for n in (2, rarest) for name in ("SetFit", "fine-tuning")]
    assert [len(trials) for trials in records.values()] == [2, 2, 2, 2]
    assert [trials[0]["steps"] for trials in records.values()] == [1, 6, 2, 6 * -(-2 * rarest // 16)]
    drawn = (tmp_path / "run" / "sst-2_2" / "seed_1" / "train.tsv").read_text().splitlines()
    assert [line[-1] for line in drawn[1:]].count("1") == 2 and set(drawn) < set(train.splitlines())
    table = capsys.readouterr().out
    assert table == (tmp_path / "run" / "table.md").read_text()
    scores = [100 * trial["score"] for trial in records["SST-2, 2, SetFit"]]
    assert f"{sum(scores) / 2:.1f} ({min(scores):.1f} to {max(scores):.1f})" in table
