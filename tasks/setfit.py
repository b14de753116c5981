"""Trains a classifier on few examples per class, in SetFit's two steps (arXiv 2209.11055).

    python -m tasks.setfit --train_file=train.csv --dev_file=dev.csv --text_column=message --label_column=category \\
        --examples_per_class=8 --init_checkpoint=all_minilm_l6_v2 --run_dir=runs/messages

First a text embedder is trained on pairs of texts with equal and with different labels, then a logistic regression is
fitted on its vectors. The result is a classifier like that of tasks.classify, with the same files, modes and outputs.
Re-run the same command to resume an interrupted run.
"""

from absl import app

from keras_bert.finetuning.few_shot_task import FewShotClassification
from tasks.flags import fine_tuning_program

# The setfit library's defaults; pairs of any length share a batch.
define_flags, run, main = fine_tuning_program(
    "tasks.setfit",
    FewShotClassification,
    epochs=1.0,
    batch_size=16,
    learning_rate=2e-5,
    bucket_step=0,
    bias_correction=True,
)

if __name__ == "__main__":
    define_flags()
    app.run(main)
