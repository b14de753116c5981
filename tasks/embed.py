"""Trains a text embedder on a user's own pairs or triplets, evaluates it, and exports a SavedModel.

    python -m tasks.embed --train_file=pairs.csv --dev_file=dev.csv --text_columns=question,answer \\
        --init_checkpoint=all_minilm_l6_v2 --run_dir=runs/answers --batch_size=64
    python -m tasks.embed --train_file=scored.tsv --dev_file=dev.tsv --text_columns=sentence_A,sentence_B \\
        --score_column=relatedness --score_range=1,5 --objective=cosent --evaluation=similarity \\
        --init_checkpoint=all_minilm_l6_v2 --run_dir=runs/relatedness

Files are TSV, CSV or JSON Lines with named columns. --mode selects any combination of train, eval and export. With
--gradient_accumulation_steps the texts of a large batch are still compared with all others. Outputs are written to
--run_dir: results.json, evaluation.json, log.jsonl, training_curve.png, saved_model/1/. Re-run the same command to
resume an interrupted run.
"""

from absl import app

from keras_bert.finetuning.embedding_task import EmbeddingTask
from tasks.flags import fine_tuning_program

# Batches in random order: texts of similar length are other negatives.
define_flags, run, main = fine_tuning_program("tasks.embed", EmbeddingTask, bucket_step=0)

if __name__ == "__main__":
    define_flags()
    app.run(main)
