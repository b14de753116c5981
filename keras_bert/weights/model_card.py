"""Writes the model card of a folder of weights: a README.md with a header that the Hugging Face Hub reads."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keras_bert.io.atomic_write import atomic_text_file
from keras_bert.typing import PathLike
from keras_bert.weights.bert_config import SIZE_NAMES, read_json
from keras_bert.weights.hub import MODEL_CARD_NAME, SCHEME, hash_file, parse_address
from keras_bert.weights.hugging_face import OWN_MODEL_TYPE
from keras_bert.weights.preset_table import format_bytes
from keras_bert.weights.sentence_transformers import MODULES_NAME

LIBRARY = "keras_bert"
_CONFIG_NAME = "config.json"
# Our classes by the architectures that Hugging Face's configurations name.
_CLASSES = {
    "BertForSequenceClassification": "BertClassifier",
    "BertForTokenClassification": "BertTokenClassifier",
    "BertForMultipleChoice": "BertMultipleChoice",
    "BertForQuestionAnswering": "BertSpanLabeler",
    "BertForPreTraining": "BertPretrainer",
    "BertForMaskedLM": "BertPretrainer",
    "BertForNextSentencePrediction": "BertPretrainer",
    "BertModel": "BertEncoder",
}
# The hub's name of a task, what the head is called, and a call of the model, by class.
_USES = {
    "BertClassifier": (
        "text-classification",
        "a classification layer",
        'print(model.predict_labels(["a first text", "a second text"]))',
    ),
    "BertTokenClassifier": (
        "token-classification",
        "a classification layer for words",
        'print(model.tag(["Ada Lovelace lived in London."]))',
    ),
    "BertMultipleChoice": (
        "multiple-choice",
        "a layer that scores choices",
        'print(model.choose({"prompt": ["She opened the door."], "choices": [["It rained.", "It sang."]]}))',
    ),
    "BertSpanLabeler": (
        "question-answering",
        "a layer that finds spans",
        'print(model.answer(["Where did she live?"], ["Ada Lovelace lived in London."]))',
    ),
    "BertPretrainer": (
        "fill-mask",
        "pre-training heads",
        'print(model.fill_masks(["It was a [MASK] night."]))',
    ),
    "BertTextEmbedder": (
        "sentence-similarity",
        "a vector per text",
        'print(model.encode(["a first text", "a second text"]).shape)',
    ),
    "BertFeatureExtractor": (
        "feature-extraction",
        "no head",
        'print(model.extract(["a first text", "a second text"])[0].vectors.shape)',
    ),
    "BertEncoder": ("feature-extraction", "no head", "print(model.count_params())"),
}
_REGRESSION_CALL = 'print(model.predict(["a first text", "a second text"]))'
_BIAS = (
    "The model repeats what its training data say, including prejudices. Measure it on data of your own use before you "
    "rely on it."
)
_MAX_LABELS_LISTED = 100
_MAX_EVALUATIONS = 50
# Characters that YAML does not allow in a quoted text as they are.
_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Score:
    """A score of the published weights."""

    metric: str
    value: float
    dataset: str = ""
    split: str = ""
    seed: int | None = None  # of the run that trained the weights


@dataclass(frozen=True)
class ModelCard:
    """The contents of a model card; what is empty is left out.

    `model_class` is the name of the class of keras_bert that loads the weights. `language` and `license` are codes of
    the hub, such as "en" and "apache-2.0"; `base_model` and `datasets` are names on the hub. `scores` may be `Score`s
    or dicts of their fields. `trials` are rows of a table of all runs, dicts of the same keys.
    """

    title: str
    model_class: str = "BertEncoder"
    description: str = ""
    language: str | Sequence[str] = ()
    license: str = ""
    base_model: str = ""
    datasets: Sequence[str] = ()
    pipeline_tag: str = ""
    tags: Sequence[str] = ()
    labels: Sequence[str] = ()
    problem_type: str | None = None
    data: str | Sequence[str] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    scores: Sequence[Score | Mapping[str, Any]] = ()
    trials: Sequence[Mapping[str, Any]] = ()
    limits: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.model_class not in _USES:
            raise ValueError(f"model_class must be one of {list(_USES)}; got {self.model_class!r}")
        scores = [score if isinstance(score, Score) else Score(**score) for score in self.scores]
        object.__setattr__(self, "scores", tuple(scores))
        for name in ("language", "data"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) and value else tuple(value))

    def render(self, files: Mapping[str, Path], repository: str | None = None) -> str:
        """Returns the card as Markdown; `files` are those of the folder, whose hashes it lists."""
        return "\n".join(["---", *self._header(), "---", "", *self._body(repository), *_list_files(files)]) + "\n"

    def _header(self) -> list[str]:
        task = self.pipeline_tag or _USES[self.model_class][0]
        metrics = list(dict.fromkeys(score.metric for score in self._scores))
        header: dict[str, Any] = {
            "library_name": LIBRARY,
            "pipeline_tag": task,
            "license": self.license,
            "language": list(self.language),
            "base_model": self.base_model,
            "datasets": list(self.datasets),
            "metrics": metrics,
            "tags": list(dict.fromkeys([LIBRARY, "bert", "keras", *self.tags])),
        }
        results: list[dict[str, Any]] = []
        for score in self._scores[:_MAX_EVALUATIONS]:
            dataset = {"type": (self.datasets or [score.dataset])[0], "name": score.dataset, "split": score.split}
            results.append(
                {
                    "task": {"type": task},
                    "dataset": {key: value for key, value in dataset.items() if value},
                    "metrics": [{"type": score.metric, "value": score.value}],
                }
            )
        if results and all(score.dataset for score in self._scores):
            header["model-index"] = [{"name": self.title, "results": results}]
        return [f"{key}: {_yaml(value)}" for key, value in header.items() if value]

    @property
    def _scores(self) -> list[Score]:
        return [score for score in self.scores if isinstance(score, Score)]

    def _body(self, repository: str | None) -> list[str]:
        lines = [f"# {_plain(self.title)}", ""]
        if self.description:
            lines += [self.description, ""]
        lines += self._usage(repository)
        if self.labels:
            more = (
                [f"and {len(self.labels) - _MAX_LABELS_LISTED} more"] if len(self.labels) > _MAX_LABELS_LISTED else []
            )
            shown = [_code(label) for label in self.labels[:_MAX_LABELS_LISTED]]
            lines += ["## Labels", "", f"{', '.join(shown + more)}", ""]
        if self.base_model or self.data:
            lines += ["## Training data", ""]
            if self.base_model:
                lines.append(f"- Initial weights: {_code(self.base_model)}")
            lines += [*(f"- {item}" for item in self.data), ""]
        if self.recipe or self.command:
            lines += [
                "## Recipe",
                "",
                *_table([{"setting": key, "value": value} for key, value in self.recipe.items()]),
            ]
        if self.command:
            lines += ["```", self.command, "```", ""]
        if self.scores or self.trials:
            lines += ["## Scores", ""]
            rows = [
                {
                    "data": score.dataset,
                    "split": score.split,
                    "metric": score.metric,
                    "value": score.value,
                    "seed": score.seed,
                }
                for score in self._scores
            ]
            lines += [*_table(rows), *(["All runs:", "", *_table(self.trials)] if self.trials else [])]
        if self.limits:
            lines += ["## Limits", "", *(f"- {limit}" for limit in self.limits), ""]
        return lines

    def _usage(self, repository: str | None) -> list[str]:
        call = _USES[self.model_class][2]
        if self.problem_type == "regression":
            call = _REGRESSION_CALL
        load = f'from_preset("{SCHEME}{repository}")' if repository else 'from_checkpoint("path/of/this/folder")'
        return [
            "## Usage",
            "",
            "```python",
            "import keras_bert  # pip install keras-bert-zoo",
            "",
            f"model = keras_bert.{self.model_class}.{load}",
            call,
            "```",
            "",
        ]


def write_model_card(
    folder: PathLike,
    repository: str | None = None,
    model_class: str | None = None,
    overwrite: bool = True,
    **fields: Any,
) -> Path:
    """Writes the model card of a folder of weights, `README.md`.

    Args:
        folder: folder of the weights. Sizes, labels and class are read from a `config.json` of Hugging Face's form.
        repository: `owner/name` on the hub, which the example loads from; None means from the folder.
        model_class: name of the class that loads the weights; None means as the configuration states.
        overwrite: whether to replace a `README.md`. If not, an existing one is kept.
        **fields: fields of `ModelCard` that are added, or replace those that were read.

    Returns:
        Path of the card.

    Raises:
        TypeError, ValueError: if a field is unknown or has a wrong value.
    """
    path = Path(folder) / MODEL_CARD_NAME
    if path.exists() and not overwrite:
        return path
    name = None if repository is None else parse_address(repository).repository
    read = _read_folder(Path(folder), model_class)
    title = name.rpartition("/")[2] if name else f"{read['model_class']} of keras_bert"
    card = ModelCard(**{"title": title, **read, **fields})
    files = {
        file.relative_to(folder).as_posix(): file
        for file in sorted(Path(folder).rglob("*"))
        if file.is_file() and file != path and not file.name.startswith(".")
    }
    text = card.render(files, name)
    with atomic_text_file(path, overwrite=True) as file:
        file.write(text)
    return path


def find_model_class(folder: Path) -> str:
    """Returns the name of our class for the weights in a folder and their head; an unknown head is left out."""
    if (folder / MODULES_NAME).is_file():
        return "BertTextEmbedder"
    architecture = next(iter(_read_config(folder).get("architectures") or []), None)
    return _CLASSES.get(str(architecture), "BertEncoder")


def _read_config(folder: Path) -> dict[str, Any]:
    return read_json(folder / _CONFIG_NAME) if (folder / _CONFIG_NAME).is_file() else {}


def _read_folder(folder: Path, model_class: str | None) -> dict[str, Any]:
    """Returns the fields of a card that the configuration of a folder states."""
    config = _read_config(folder)
    if model_class not in _USES:  # a subclass of the user's is loaded by the class that it extends
        model_class = find_model_class(folder)
    fields: dict[str, Any] = {"model_class": model_class, "limits": [_BIAS]}
    if (folder / MODULES_NAME).is_file():
        is_theirs = config.get("model_type") != OWN_MODEL_TYPE  # weights in int8 are not
        fields["tags"] = [*(["sentence-transformers"] if is_theirs else []), "feature-extraction"]
        fields["pipeline_tag"] = "sentence-similarity"
    labels = config.get("id2label")
    if isinstance(labels, dict) and model_class in ("BertClassifier", "BertTokenClassifier"):
        fields["labels"] = [str(label) for label in labels.values()]
        fields["problem_type"] = config.get("problem_type")
    sizes = {name: config.get(name) for name in SIZE_NAMES}
    if all(isinstance(size, int) for size in sizes.values()):
        head = _USES[model_class][1]
        fields["description"] = (
            f"A BERT with {sizes['num_hidden_layers']} layers, hidden size {sizes['hidden_size']}, "
            f"{sizes['num_attention_heads']} attention heads, {sizes['vocab_size']:,} wordpieces and {head}. "
            "It was written by keras_bert, BERT for Keras 3."
        )
        direction = config.get("attention_direction")
        if isinstance(direction, str):
            fields["description"] += f" Its attention goes {direction.replace('_', ' ')}; only keras_bert reads it."
        pooling = config.get("classifier_pooling")
        if isinstance(pooling, str):
            fields["description"] += f" The pooling is {pooling!r}; only keras_bert reads it."
        fields["limits"] = [f"An input has at most {sizes['max_position_embeddings']:,} tokens.", _BIAS]
    return fields


def _list_files(files: Mapping[str, Path]) -> list[str]:
    rows = [
        {"file": _code(name), "size": format_bytes(path.stat().st_size), "SHA-256": f"`{hash_file(path)}`"}
        for name, path in files.items()
    ]
    return ["## Files", "", *_table(rows)[:-1]] if rows else []


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a Markdown table of rows with the same keys, without the columns that are empty, and an empty line."""
    if not rows:
        return []
    columns = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(_cell(row[name]) for name in columns)} |" for row in rows]
    return [*lines, ""]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return _plain(str(value)).replace("|", "\\|")


def _plain(text: Any) -> str:
    """Returns a text on one line, so that it cannot end the Markdown element that it is in."""
    return " ".join(_NOT_PRINTABLE.sub(" ", str(text)).split())


def _code(text: Any) -> str:
    """Returns a text as inline code, which cannot contain a backtick."""
    return f"`{_plain(text).replace('`', chr(39))}`"


def _yaml(value: Any) -> str:
    """Returns a value in YAML's flow style, which JSON is part of but for some characters."""
    return _NOT_PRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
