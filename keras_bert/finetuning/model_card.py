"""The model card of a pre-trained model: what it is, what it was trained on, how, and its scores."""

from __future__ import annotations

from typing import Any

from keras_bert.finetuning.pretraining_recipe import PretrainingRecipe
from keras_bert.layers.attention_mask import BIDIRECTIONAL
from keras_bert.models.pretrainer import BertPretrainer
from keras_bert.pretraining.objectives import MASKED


def model_card(
    model: BertPretrainer, recipe: PretrainingRecipe, results: dict[str, Any], command: str | None = None
) -> str:
    """Returns the card as Markdown, from a run's `results.json` and the command that was run."""
    encoder, data = model.encoder, results["configuration"]["data"]
    case = "lower-cased" if data["lower_case"] else "cased"
    lines = [
        "# A BERT pre-trained by keras_bert",
        "",
        f"{encoder.num_hidden_layers} layers, hidden size {encoder.hidden_size}, {encoder.num_attention_heads} heads, "
        f"{encoder.max_position_embeddings} positions; {encoder.count_params():,} parameters, besides those of the "
        f"pre-training heads. {data['vocab_size']:,} wordpieces, {case}.{_describe_direction(encoder)}",
        "",
        "```python",
        "import keras_bert",
        "",
        'classifier = keras_bert.BertClassifier.from_checkpoint("model", labels=["negative", "positive"])',
        "```",
        "",
        "## Training",
        "",
        f"- Objective: {recipe.objective}; next sentence: {recipe.next_sentence}.",
        f"- Data: {_describe_data(data, recipe.objective)}",
    ]
    for phase in recipe.phases:
        rows = f"{phase.batch_size:,} rows of {phase.sequence_length} tokens"
        lines.append(f"- {phase.steps:,} steps of {rows}{', several instances per row' if recipe.pack else ''}.")
    lines += [
        f"- Learning rate {recipe.learning_rate:g}, {results['num_warmup_steps']:,} warmup steps, decay "
        f"{recipe.schedule!r}; weight decay {recipe.weight_decay:g}; dropout {encoder.hidden_dropout_prob:g}; seed "
        f"{recipe.seed}.",
        f"- Computed in {encoder.dtype_policy.name}, stored in {recipe.checkpoint_dtype}.",
        f"- {results['updates']:,} steps in {results['seconds'] / 60:,.0f} minutes.",
    ]
    if recipe.init_checkpoint:
        lines.append(f"- Initial weights: {recipe.init_checkpoint}.")
    if command:
        lines += ["", "```", command, "```"]
    if results["metrics"]:
        lines += ["", "## Scores on held-out instances", "", "| score | |", "|---|---|"]
        lines += [f"| {name.removeprefix('eval/')} | {value:.4f} |" for name, value in results["metrics"].items()]
    return "\n".join(lines) + "\n"


def _describe_direction(encoder: Any) -> str:
    if encoder.attention_direction == BIDIRECTIONAL:
        return ""
    direction = encoder.attention_direction.replace("_", " ")
    return f" Its attention goes {direction}, which Hugging Face's BERT does not support: it refuses the folder."


def _describe_data(data: dict[str, Any], objective: str) -> str:
    if "text" not in data:
        return f"{sum(map(len, data['instances'])):,} files of instances."
    pieces = [piece for shard in data["text"] for piece in shard]
    size = sum(end - start for _, start, end in pieces)
    files = len({path for path, *_ in pieces})
    masked = f", {data['masked_lm_prob']:.0%} of the tokens masked" if objective == MASKED else ""
    return f"{size:,} bytes of text in {files:,} files{masked}, with new masks in each pass."
