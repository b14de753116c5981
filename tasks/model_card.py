"""What a reader of a pre-trained model must know: what it is, what it was trained on, how, and how well."""

from keras_bert.layers.attention_mask import BIDIRECTIONAL
from keras_bert.pretraining.objectives import MASKED


def model_card(model, results, command=None):
    """The card of a model that was pre-trained here, as Markdown.

    Args:
        model: `BertPretrainer`.
        results: dict, as in a run's `results.json`.
        command: str or None. What was run.

    Returns:
        str.
    """
    encoder, made = model.encoder, results["configuration"]
    data = made["data"]
    case = "lower-cased" if data["lower_case"] else "cased"
    lines = [
        "# A BERT pre-trained by keras_bert",
        "",
        f"{encoder.num_hidden_layers} blocks, {encoder.hidden_size} wide, {encoder.num_attention_heads} heads, "
        f"{encoder.max_position_embeddings} positions; {encoder.count_params():,} parameters, and those of the heads "
        f"of pre-training. {data['vocab_size']:,} wordpieces, {case}.{_describe_direction(encoder)}",
        "",
        "```python",
        "import keras_bert",
        "",
        'classifier = keras_bert.BertClassifier.from_checkpoint("model", labels=["negative", "positive"])',
        "```",
        "",
        "## Training",
        "",
        f"- Objective: {made['objective']}; next sentence: {made['next_sentence']}.",
        f"- Data: {_describe_data(data, made['objective'])}",
        *(f"- {_describe_phase(phase, made['pack'])}" for phase in made["phases"]),
        f"- Learning rate {made['learning_rate']:g}, {results['num_warmup_steps']:,} updates of warm-up, decay "
        f"{made['schedule']!r}; weight decay {made['weight_decay']:g}; dropout {encoder.hidden_dropout_prob:g}; seed "
        f"{made['seed']}.",
        f"- Computed in {encoder.dtype_policy.name}, stored in {made['checkpoint_dtype']}.",
        f"- {results['updates']:,} updates in {results['seconds'] / 60:,.0f} minutes.",
    ]
    if made["init_checkpoint"]:
        lines.append(f"- It began with the weights of {made['init_checkpoint']}.")
    if command:
        lines += ["", "```", command, "```"]
    if results["metrics"]:
        lines += ["", "## Scores on held-out instances", "", "| score | |", "|---|---|"]
        lines += [f"| {name.removeprefix('eval/')} | {value:.4f} |" for name, value in results["metrics"].items()]
    return "\n".join(lines) + "\n"


def _describe_direction(encoder):
    if encoder.attention_direction == BIDIRECTIONAL:
        return ""
    direction = encoder.attention_direction.replace("_", " ")
    return f" Its attention goes {direction}, for which Hugging Face's library has no BERT: it refuses the folder."


def _describe_data(data, objective):
    if "text" not in data:
        return f"{sum(map(len, data['instances'])):,} files of instances."
    pieces = [piece for shard in data["text"] for piece in shard]
    size = sum(end - start for _, start, end in pieces)
    files = len({path for path, *_ in pieces})
    masked = f", {data['masking_rate']:.0%} of the tokens masked" if objective == MASKED else ""
    return f"{size:,} bytes of text in {files:,} files{masked}, anew in each pass."


def _describe_phase(phase, pack):
    rows = f"{phase['batch_size']:,} rows of {phase['sequence_length']} tokens"
    return f"{phase['updates']:,} updates of {rows}{', several instances a row' if pack else ''}."
