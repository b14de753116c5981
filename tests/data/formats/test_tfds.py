import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from keras_bert.data.formats.glue_files import GLUE_TASKS, read_glue
from keras_bert.data.formats.tfds import read_glue_tfds, read_tfds

TEXTS = ["one", "naïve \u2028 😀", "", "tab\tand\nline", '"quoted"']


class LocalReviews(tfds.core.GeneratorBasedBuilder):
    """A data set of a few reviews."""

    VERSION = tfds.core.Version("1.2.0")

    def _info(self):
        classes = tfds.features.ClassLabel(names=["bad", "good"])
        features = {
            "review": tfds.features.Text(),
            "title": tfds.features.Text(),
            "opinion": classes,
            "topics": tfds.features.Sequence(classes),
            "tags": tfds.features.Sequence(tfds.features.Text()),
            "author": tfds.features.Text(),
            "stars": np.int32,
            "score": np.float32,
            "picture": tfds.features.Tensor(shape=(2, 2), dtype=np.float32),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples(name) for name in ("train", "unlabelled", "garbled")}

    def _generate_examples(self, split):
        for number, text in enumerate(TEXTS):
            example = {
                "review": b"\xff" if split == "garbled" else text,
                "title": f"title {number}",
                "opinion": -1 if split == "unlabelled" else number % 2,
                "topics": [0, 1][: number % 3],
                "tags": ["x", "y"][: number % 3],
                "author": f"author {number}",
                "stars": number,
                "score": number / 2,
                "picture": np.zeros([2, 2], "float32"),
            }
            yield number, example


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    tfds.disable_progress_bar()
    LocalReviews(data_dir=folder).download_and_prepare()
    return folder


@pytest.mark.parametrize(
    "column, labels",
    [
        ("opinion", ["bad", "good", "bad", "good", "bad"]),
        ("topics", [[], ["bad"], ["bad", "good"], [], ["bad"]]),
        ("tags", [[], ["x"], ["x", "y"], [], ["x"]]),
        ("author", [f"author {i}" for i in range(5)]),
        ("stars", ["0", "1", "2", "3", "4"]),
        ("score", [0.0, 0.5, 1.0, 1.5, 2.0]),
    ],
)
def test_reads_all_kinds_of_labels(folder, column, labels):
    examples = read_tfds("local_reviews", "train", ("review", "title"), column, folder)
    assert list(examples) == list(examples)
    assert sorted(examples, key=lambda example: example["text_b"]) == [
        {"text_a": text, "text_b": f"title {i}", "label": label}
        for i, (text, label) in enumerate(zip(TEXTS, labels, strict=True))
    ]
    assert {type(example["label"]) for example in examples} == {type(labels[0])}


def test_reads_parts_of_splits_versions_and_indices(folder):
    whole = list(read_tfds("local_reviews:1.2.0", "train", "review", data_dir=str(folder), index_column="stars"))
    assert {example["index"]: example["text"] for example in whole} == dict(enumerate(TEXTS))
    parts = (
        read_tfds("local_reviews", part, "review", None, folder, index_column="stars")
        for part in ("train[:40%]", "train[2:]")
    )
    assert [example for part in parts for example in part] == whole


@pytest.mark.parametrize(
    "split, arguments, message",
    [
        ("test", {}, r"local_reviews has no split 'test'; its splits are \['garbled', 'train', 'unlabelled'\]"),
        ("train[:0]", {}, "has no examples"),
        ("train", {"text_columns": "text"}, "has no feature 'text'; its features are .*'review'"),
        ("train", {"text_columns": "stars"}, "the feature 'stars' of local_reviews must be texts; it is"),
        ("train", {"text_columns": "tags"}, "the feature 'tags' of local_reviews must be texts"),
        ("train", {"text_columns": ("review", "title", "author")}, "must be the name of a feature, or two names"),
        ("train", {"label_column": "picture"}, "the feature 'picture' of local_reviews must be labels"),
        ("train", {"label_column": "sentiment"}, "has no feature 'sentiment'"),
        ("train", {"index_column": "score"}, "the feature 'score' of local_reviews must be integers"),
    ],
)
def test_checks_splits_and_features_at_once(folder, split, arguments, message):
    with pytest.raises(ValueError, match=message):
        read_tfds("local_reviews", split, **{"text_columns": "review", "data_dir": folder, **arguments})


def test_invalid_examples_are_reported(folder):
    with pytest.raises(ValueError, match=r"local_reviews/1.2.0, unlabelled, example 1: has no label: -1 is not"):
        list(read_tfds("local_reviews", "unlabelled", "review", "opinion", folder))
    with pytest.raises(ValueError, match=r"local_reviews/1.2.0, garbled, example 1: 'utf-8' codec can't decode"):
        list(read_tfds("local_reviews", "garbled", "review", "opinion", folder))


@pytest.mark.parametrize("name", ["glue/sst2", "no_such_set", "imdb_reviews:1.0.0", "mnist"])
def test_nothing_is_downloaded(tmp_path, monkeypatch, name):
    def refuse(*_, **__):
        pytest.fail("nothing may be downloaded")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", refuse)
    with pytest.raises(FileNotFoundError, match=r"looked for .*<version>. Prepare it once.*download=True") as caught:
        read_tfds(name, "train", "text", "label", tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value)) < 600
    assert not list(tmp_path.iterdir())


def test_lists_the_prepared_versions_and_configurations(tmp_path):
    for version in ("1.9.0", "1.10.0"):
        (tmp_path / "glue" / "rte" / version).mkdir(parents=True)
        (tmp_path / "glue" / "rte" / version / "features.json").touch()
    (tmp_path / "glue" / "sst2" / "incomplete.ABC_2.0.0").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"has no version '2.0.0'; there are \['1.10.0', '1.9.0'\]"):
        read_tfds("glue/rte:2.0.0", "train", "sentence1", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has configurations; give one of \['rte'\], as glue/..."):
        read_tfds("glue", "train", "sentence1", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"the dataset 'glue/sst2' is missing, or not prepared"):
        read_tfds("glue/sst2", "train", "sentence", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"the dataset 'glue/mnli' is missing, or not prepared"):
        read_glue_tfds("mnli", "dev_matched", tmp_path)
    with pytest.raises(ValueError, match="GLUE has no task 'snli'"):
        read_glue_tfds("snli", "dev", tmp_path)


def test_reads_the_latest_version(folder, tmp_path):
    older = tmp_path / "local_reviews" / "1.9.0"
    older.mkdir(parents=True)
    (older / "features.json").write_text("not read")
    (tmp_path / "local_reviews" / "1.10.0").symlink_to(folder / "local_reviews" / "1.2.0")
    assert len(list(read_tfds("local_reviews", "train", "review", data_dir=tmp_path))) == 5


def test_names_the_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match="pip install tensorflow-datasets importlib_resources"):
        read_tfds("local_reviews", "train", "review")


def write_glue_files(task, root):
    """Writes small files as GLUE is downloaded, which both readers accept."""
    folder = root / ("AX" if task.name == "ax" else task.folders[0])
    folder.mkdir()
    labels = task.labels or ("0.5", "2.75", "5.0")
    for split in task.splits:
        is_test = split in task.test_splits
        table = [["index", "id", *task.text_columns, *([] if is_test else [task.label_column])]]
        for i in range(5):
            texts = [f"{split} {column} {i}" for column in task.text_columns]
            table.append([str(i), str(i), *texts, *([] if is_test else [labels[i % len(labels)]])])
        if split in task.headerless:
            table = [["x", row[3], "*", row[2]] for row in table[1:]]
        (folder / task.files[split][0]).write_text("".join("\t".join(row) + "\n" for row in table))
    return folder


def write_raw_mrpc(root):
    """Writes the raw release of MRPC, whose training file contains the dev split of GLUE."""
    folder = root / "MRPC"
    header, content = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n", {}
    for split in ("train", "dev", "test"):
        content[split] = "".join(f"{i % 2}\t{split} {i}\t0\t{split} a {i}\t{split} b {i}\n" for i in range(5))
        (folder / f"{split}.tsv").write_text(header + content[split])
    (folder / "test.tsv").rename(folder / "msr_paraphrase_test.txt")
    (folder / "raw_train.txt").write_text(header + content["train"] + content["dev"])
    (folder / "dev_ids.tsv").write_text("".join(f"dev {i}\t0\n" for i in range(5)))
    names = {"train": "raw_train.txt", "test": "msr_paraphrase_test.txt", "dev_ids": "dev_ids.tsv"}
    return {name: folder / file for name, file in names.items()}


@pytest.mark.slow
@pytest.mark.parametrize("task", GLUE_TASKS.values(), ids=lambda task: task.name)
def test_glue_equals_its_files(tmp_path, monkeypatch, task):
    # The builder of tensorflow_datasets, which knows the real names of the labels, finds its downloads on the disk.
    folder = write_glue_files(task, tmp_path)
    downloaded = write_raw_mrpc(tmp_path) if task.name == "mrpc" else folder / "diagnostic.tsv"
    monkeypatch.setattr(tfds.download.DownloadManager, "download_and_extract", lambda self, url: tmp_path)
    monkeypatch.setattr(tfds.download.DownloadManager, "download", lambda self, url: downloaded)
    tfds.disable_progress_bar()
    tfds.builder(f"glue/{task.name}", data_dir=tmp_path / "prepared").download_and_prepare()
    for split in task.splits:
        from_files = list(read_glue(task, tmp_path, split))
        prepared = list(read_glue_tfds(task, split, tmp_path / "prepared"))
        key = "text_a" if task.is_pair else "text"
        assert sorted(prepared, key=lambda example: example[key]) == from_files
        assert len(from_files) == 5
        assert all(("index" in example) == (split in task.test_splits) for example in prepared)
