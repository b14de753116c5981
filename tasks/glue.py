"""Fine-tunes BERT on a task of GLUE, evaluates it, writes the submission files, and exports a SavedModel.

    python -m tasks.glue --task=sst2 --data_dir=glue --init_checkpoint=uncased_L-12_H-768_A-12 --run_dir=runs/sst2

--mode selects any combination of train, eval, predict and export. Outputs are written to --run_dir: results.json,
evaluation.json, log.jsonl, training_curve.png, predictions/, saved_model/1/. Re-run the same command to resume an
interrupted run.
"""

from absl import app

from keras_bert.finetuning.glue import GlueClassification
from tasks.flags import fine_tuning_program

define_flags, run, main = fine_tuning_program("tasks.glue", GlueClassification)

if __name__ == "__main__":
    define_flags()
    app.run(main)
