"""Compares full fine-tuning, the head alone and LoRA (arXiv 2106.09685) on RTE and 4,000 rows of SST-2.

    python -m experiments.adapters --data_dir=glue --run_dir=runs/adapters

prints the table and writes it to table.md and table.json in --run_dir: the median and range of the dev scores of
--num_seeds seeds after the last training step, the number of trained parameters, the peak memory of the process on the
host (the sum of everything in it, TensorFlow included), and training examples per second, the median of the seeds.
Re-run the same command to resume an interrupted comparison. For figures of speed, run nothing else on the machine.
"""

import statistics
import sys
from pathlib import Path

from absl import app, flags

# Flags of `tasks.glue` by method. The head alone and adapters need a higher learning rate than the encoder.
METHODS = {
    "full fine-tuning": ("--learning_rate=5e-5",),
    "head only": ("--freeze=encoder", "--learning_rate=1e-3"),
    "LoRA, rank 8, all dense layers": ("--lora_rank=8", "--lora_alpha=16", "--learning_rate=1e-3"),
    "LoRA, rank 8, query and value": (
        *("--lora_rank=8", "--lora_alpha=16", "--lora_targets=query,value", "--learning_rate=1e-3"),
    ),
}
TASKS = {"rte": "RTE", "sst2": "SST-2"}
# As for docs/results.md; one evaluation, at the end.
_RECIPE = ("--epochs=3", "--bias_correction", "--schedule=linear", "--evaluate_every=1000000", "--mode=train")


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    flags.DEFINE_string("data_dir", None, "GLUE's folder.", required=True, flag_values=values)
    flags.DEFINE_string("run_dir", None, "Folder for all outputs.", required=True, flag_values=values)
    flags.DEFINE_string("init_checkpoint", "all_minilm_l6_v2", "The pre-trained BERT.", flag_values=values)
    flags.DEFINE_string("precision", "float32", "Dtype policy of the computation.", flag_values=values)
    flags.DEFINE_integer("num_seeds", 3, "Number of runs per method and task.", lower_bound=1, flag_values=values)
    flags.DEFINE_integer("sst2_rows", 4000, "Number of training rows of SST-2.", lower_bound=1, flag_values=values)


def write_first_rows(source, target, number):
    """Copies the header, the first `number` rows of a task's train.tsv and its dev.tsv to a folder, unless it exists.

    Raises ValueError if there are fewer rows.
    """
    from keras_bert.io.atomic_write import atomic_folder

    if target.exists():
        return
    with atomic_folder(target) as folder:
        lines = (source / "train.tsv").read_bytes().splitlines(keepends=True)[: number + 1]
        if len(lines) <= number:
            raise ValueError(f"{source / 'train.tsv'} has {len(lines) - 1} rows; --sst2_rows asks for {number}")
        (folder / "train.tsv").write_bytes(b"".join(lines))
        (folder / "dev.tsv").write_bytes((source / "dev.tsv").read_bytes())


def make_programs(values, folder):
    """Returns {(method, task): `Program`}."""
    from experiments.programs import Program

    common = (f"--init_checkpoint={values.init_checkpoint}", f"--precision={values.precision}", *_RECIPE)
    data_dirs = {"rte": values.data_dir, "sst2": folder / "SST-2"}
    return {
        (method, task): Program(
            f"{method}, {TASKS[task]}",
            "tasks.glue",
            (f"--task={task}", *common, *given, f"--num_seeds={values.num_seeds}"),
            (f"--data_dir={data_dirs[task]}",),
            folder / task / method.replace(", ", "_").replace(" ", "_"),
        )
        for task in TASKS
        for method, given in METHODS.items()
    }


def make_row(method, task, results):
    """Returns {column: cell} from the `results.json` of a method on a task."""
    trials = results["trials"]
    scores = [trial["score"] for trial in trials if trial["score"] is not None]
    speeds = [trial["examples_per_second"] for trial in trials if trial["examples_per_second"] is not None]
    memory = max(trial["peak_host_memory"] or 0 for trial in trials)
    cells = {"Task": TASKS[task], "Method": method, "score": "diverged"}
    if scores:
        range_ = f"{min(scores):.4f} to {max(scores):.4f}, n={len(scores)}"
        cells["score"] = f"{statistics.median(scores):.4f} ({range_})"
    return {
        **cells,
        "trained parameters": f"{trials[0]['trainable_parameters']:,}",
        "peak memory": f"{memory / 1e9:.2f} GB" if memory else "-",
        "examples/s": f"{statistics.median(speeds):.1f}" if speeds else "-",
    }


def run(values):
    """Runs all programs that have not finished, and writes the table."""
    from experiments.programs import run_once
    from experiments.tables import format_table, write_table
    from keras_bert.training.run_dir import RunDirectory

    names = ("init_checkpoint", "precision", "num_seeds", "sst2_rows")
    run_dir = RunDirectory(values.run_dir, {name: getattr(values, name) for name in names})
    folder = Path(values.run_dir).resolve()
    write_first_rows(Path(values.data_dir) / "SST-2", folder / "SST-2", values.sst2_rows)
    rows = []
    for (method, task), program in make_programs(values, folder).items():
        results = run_once(program, lambda line: print(line, file=sys.stderr))
        rows.append(make_row(method, task, results))
        write_table(run_dir.path, rows, rows)
    print(format_table(rows), end="")


def main(argv):
    """Runs the comparison."""
    from experiments.programs import run_experiment

    run_experiment("experiments.adapters", run, argv)


if __name__ == "__main__":
    define_flags()
    app.run(main)
