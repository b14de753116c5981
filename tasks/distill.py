"""Distils a teacher into a smaller student: on raw text, for any task, or for one task with labels.

    python -m tools.make_student --teacher=all_minilm_l6_v2 --layers=0,4,5 --output=student
    python -m tasks.distill --teacher=all_minilm_l6_v2 --student=student --text_files='corpus/*.txt' \\
        --vector_weight=1 --run_dir=runs/student
    python -m tasks.distill --teacher=runs/teacher --student=runs/student --train_file=train.csv --run_dir=runs/small

With --text_files the student learns the teacher's hidden states, attention relations (--relation_weight) and text
vectors (--vector_weight). With --train_file it learns the logits of a teacher that tasks.classify trained, and the
labels; --mode and the outputs are those of tasks.classify. --student is another name of --init_checkpoint. Re-run the
same command to resume an interrupted run.
"""

from types import SimpleNamespace

from absl import app, flags

from keras_bert.finetuning.distillation import DistillationSettings, distillation_task
from tasks.flags import fine_tuning_program

_task = SimpleNamespace(settings_class=DistillationSettings, from_settings=distillation_task)
_define_flags, run, main = fine_tuning_program("tasks.distill", _task, mode=("train",))


def define_flags(values=flags.FLAGS):
    """Defines the flags; not on import, so that one process can import several programs."""
    _define_flags(values)
    flags.DEFINE_alias("student", "init_checkpoint", flag_values=values)


if __name__ == "__main__":
    define_flags()
    app.run(main)
