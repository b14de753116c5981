"""Fine-tunes BERT to answer questions, on SQuAD or files like it; evaluates it, answers files, exports a SavedModel.

    python -m tasks.squad --version=1.1 --train_file=train-v1.1.json --eval_file=dev-v1.1.json \\
        --init_checkpoint=uncased_L-12_H-768_A-12 --run_dir=runs/squad

--mode selects any combination of train, eval, predict and export. Outputs are written to --run_dir: results.json,
evaluation.json, log.jsonl, training_curve.png, saved_model/1/, and predictions.json, nbest_predictions.json and
null_odds.json for the official scripts, in evaluation_eval/ and predictions/predict/. Re-run the same command to resume
an interrupted run.
"""

from absl import app

from keras_bert.finetuning.question_answering_task import QuestionAnsweringTask
from tasks.flags import fine_tuning_program

define_flags, run, main = fine_tuning_program("tasks.squad", QuestionAnsweringTask, max_seq_length=384)

if __name__ == "__main__":
    define_flags()
    app.run(main)
