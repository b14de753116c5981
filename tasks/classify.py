"""Fine-tunes BERT on a user's own files, evaluates it, writes predictions, and exports a SavedModel.

    python -m tasks.classify --train_file=train.csv --dev_file=dev.csv --text_column=message --label_column=category \\
        --init_checkpoint=all_minilm_l6_v2 --run_dir=runs/messages

Files are TSV, CSV or JSON Lines with named columns. Labels are taken from the training file, or given. --mode selects
any combination of train, eval, predict and export. Outputs are written to --run_dir: results.json, evaluation.json,
confusion_matrix_dev.png, log.jsonl, training_curve.png, predictions/, saved_model/1/. Re-run the same command to resume
an interrupted run.
"""

from absl import app

from keras_bert.finetuning.text_classification import TextClassification
from tasks.flags import fine_tuning_program

define_flags, run, main = fine_tuning_program("tasks.classify", TextClassification)

if __name__ == "__main__":
    define_flags()
    app.run(main)
