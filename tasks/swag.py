"""Fine-tunes BERT to choose among continuations of a text, on SWAG, CODAH or files like them.

    python -m tasks.swag --train_file=train.csv --eval_file=val.csv --init_checkpoint=uncased_L-12_H-768_A-12 \\
        --run_dir=runs/swag --batch_size=16 --learning_rate=2e-5
    python -m tasks.swag --train_file=codah.tsv --fold=0 --init_checkpoint=all_minilm_l6_v2 --run_dir=runs/codah_0

--mode selects any combination of train, eval, predict and export. Outputs are written to --run_dir: results.json,
evaluation.json, log.jsonl, training_curve.png, predictions/predict.tsv, saved_model/1/. Re-run the same command to
resume an interrupted run.
"""

from absl import app

from keras_bert.finetuning.multiple_choice_task import MultipleChoiceTask
from tasks.flags import fine_tuning_program

define_flags, run, main = fine_tuning_program("tasks.swag", MultipleChoiceTask)

if __name__ == "__main__":
    define_flags()
    app.run(main)
