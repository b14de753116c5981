"""A small checkpoint and small data for the fine-tuning programs."""

import pytest

from tests.addresses import free_addresses
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
    """GLUE's folder with toy versions of SST-2, RTE, MNLI, STS-B and AX."""
    root = tmp_path_factory.mktemp("glue")

    def write(file, header, rows):
        (root / file).parent.mkdir(exist_ok=True)
        lines = [header, *("\t".join(map(str, row)) for row in rows)]
        (root / file).write_text("".join(line + "\n" for line in lines), encoding="utf-8")

    texts, names = toy_reviews(200)
    good = [int(name == "positive") for name in names]
    pairs = [(i, texts[i], texts[(i + 1) % 200]) for i in range(200)]
    pair_header = "index\tsentence1\tsentence2"
    for split, rows in {"train": range(160), "dev": range(160, 200)}.items():
        write(f"SST-2/{split}.tsv", "sentence\tlabel", ((texts[i], good[i]) for i in rows))
        entailment = ["not_entailment", "entailment"]
        write(f"RTE/{split}.tsv", f"{pair_header}\tlabel", ((*pairs[i], entailment[good[i]]) for i in rows))
        scores = [5 * good[i] - 0.1 * good[i] * (i % 9) for i in range(200)]
        write(f"STS-B/{split}.tsv", f"{pair_header}\tscore", ((*pairs[i], scores[i]) for i in rows))
    for split, rows in {"train": range(160), "dev_matched": range(160, 180), "dev_mismatched": range(180, 200)}.items():
        words = ["contradiction", "entailment", "neutral"]
        labels = [words[good[i] + (i % 9 == 0)] for i in range(200)]
        write(f"MNLI/{split}.tsv", f"{pair_header}\tgold_label", ((*pairs[i], labels[i]) for i in rows))
    write("SST-2/test.tsv", "index\tsentence", enumerate(texts[:7]))
    for file in ("RTE/test", "STS-B/test", "MNLI/test_matched", "MNLI/test_mismatched", "AX/diagnostic"):
        write(f"{file}.tsv", pair_header, pairs[:7])
    return root


@pytest.fixture(scope="module")
def start():
    """Starts programs, several as the workers of one run; those still running after the tests are killed."""
    started = []

    def start(run_dir, *command, workers=1):
        options = [[]]
        if workers > 1:
            cluster = ["--strategy=multi_worker", f"--workers={','.join(free_addresses(workers))}"]
            options = [[*cluster, f"--worker_index={index}"] for index in range(workers)]
        programs = [Program(run_dir, *command, *own) for own in options]
        started.extend(programs)
        return programs

    yield start
    for program in started:
        program.process.kill()


@pytest.fixture(scope="module")
def start_rte(start, toy_glue, toy_checkpoint):
    """Starts training on RTE: 120 steps, with a log record every 5 and a checkpoint every 20."""
    command = ["tasks.glue", "--task=rte", f"--data_dir={toy_glue}", f"--init_checkpoint={toy_checkpoint}"]
    command += ["--mode=train", "--max_seq_length=16", "--batch_size=8", "--epochs=6", "--evaluate_every=120"]
    command += ["--steps_per_execution=5", "--log_every=5", "--checkpoint_every=20"]
    return lambda run_dir, *flags, **options: start(run_dir, *command, *flags, **options)
