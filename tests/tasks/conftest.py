"""A small checkpoint and small data for the fine-tuning programs."""

import pytest

from tests.tasks.programs import Program
from tests.toys import toy_classifier, toy_preprocessor, toy_reviews


@pytest.fixture(scope="session")
def toy_checkpoint(tmp_path_factory):
    """A checkpoint of a toy encoder, without a classification layer."""
    encoder = toy_classifier().encoder
    folder = tmp_path_factory.mktemp("checkpoints") / "toy"
    return encoder.save_checkpoint(folder, toy_preprocessor().tokenizer)


@pytest.fixture(scope="session")
def toy_glue(tmp_path_factory):
    """GLUE's folder with toy versions of SST-2, RTE, MNLI, STS-B and AX in their file forms."""
    root = tmp_path_factory.mktemp("glue")

    def write(file, *lines):
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    texts, names = toy_reviews(200)
    good = [int(name == "positive") for name in names]
    pairs = list(zip(texts, texts[1:] + texts[:1], strict=True))
    for split, rows in {"train": range(160), "dev": range(160, 200)}.items():
        write(f"SST-2/{split}.tsv", "sentence\tlabel", *(f"{texts[i]}\t{good[i]}" for i in rows))
        entailment = ["not_entailment", "entailment"]
        write(
            f"RTE/{split}.tsv",
            "index\tsentence1\tsentence2\tlabel",
            *(f"{i}\t{pairs[i][0]}\t{pairs[i][1]}\t{entailment[good[i]]}" for i in rows),
        )
        write(
            f"STS-B/{split}.tsv",
            "index\tsentence1\tsentence2\tscore",
            *(f"{i}\t{pairs[i][0]}\t{pairs[i][1]}\t{5 * good[i] - 0.1 * good[i] * (i % 9)}" for i in rows),
        )
    for split, rows in {"train": range(160), "dev_matched": range(160, 180), "dev_mismatched": range(180, 200)}.items():
        words = ["contradiction", "entailment", "neutral"]
        write(
            f"MNLI/{split}.tsv",
            "index\tsentence1\tsentence2\tgold_label",
            *(f"{i}\t{pairs[i][0]}\t{pairs[i][1]}\t{words[good[i] + (i % 9 == 0)]}" for i in rows),
        )
    write("SST-2/test.tsv", "index\tsentence", *(f"{i}\t{texts[i]}" for i in range(7)))
    pair_rows = [f"{i}\t{a}\t{b}" for i, (a, b) in enumerate(pairs[:7])]
    for file in ("RTE/test", "STS-B/test", "MNLI/test_matched", "MNLI/test_mismatched", "AX/diagnostic"):
        write(f"{file}.tsv", "index\tsentence1\tsentence2", *pair_rows)
    return root


@pytest.fixture(scope="module")
def start(toy_glue, toy_checkpoint):
    """Starts a `Program`; what is still running at the end of the tests is killed."""
    programs = []

    def start(run_dir, *flags):
        programs.append(Program(toy_glue, toy_checkpoint, run_dir, *flags))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
