"""Fine-tunes BERT to tag words, with named entities or parts of speech, on CoNLL's column files.

    python -m tasks.tagging --train_file=train.conll --dev_file=dev.conll --test_file=test.conll \\
        --init_checkpoint=cased_L-12_H-768_A-12 --run_dir=runs/entities --document_context --max_seq_length=512

--mode selects any combination of train, eval, predict and export. Outputs are written to --run_dir: results.json,
evaluation.json, evaluation_dev.conll with the predicted tags, log.jsonl, training_curve.png,
predictions/predict.conll, saved_model/1/. Re-run the same command to resume an interrupted run.
"""

from absl import app

from keras_bert.finetuning.token_classification_task import TokenClassificationTask
from tasks.flags import fine_tuning_program

# Without length buckets: a quarter slower on WNUT-17, and a point of F1 better (docs/results.md).
define_flags, run, main = fine_tuning_program("tasks.tagging", TokenClassificationTask, bucket_step=0)

if __name__ == "__main__":
    define_flags()
    app.run(main)
