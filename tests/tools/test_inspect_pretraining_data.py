"""What is printed of files of instances is what a slow count finds in them."""

import collections
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from keras_bert.pretraining.shard_files import read_sidecar, write_sidecar
from tests.forked import ForkedProgram
from tests.forked import run as run_forked
from tests.pretraining.corpora import VOCABULARY, features, records, write_corpus, write_vocabulary
from tools import create_pretraining_data, inspect_pretraining_data
from tools.instances.facts import merge_facts
from tools.instances.shards import describe_files

ROOT = Path(__file__).parents[2]
MADE = {
    "nsp": {},
    "sop": {"next_sentence": "sop", "compression": "gzip", "masked_lm_prob": 0.3, "mask_share": 0.5},
    "single": {"next_sentence": "none", "use_v2_feature_names": True, "random_share": 0.2},
    "words": {"do_whole_word_mask": True, "shard_megabytes": 1, "max_predictions_per_seq": 9},
}


def make(folder, **options):
    """Instances of a small random text, and the vocabulary beside their folder."""
    corpus = write_corpus(folder / "text")
    arguments = {
        "input_file": ",".join(corpus),
        "vocab_file": write_vocabulary(folder / "vocab.txt"),
        "output_dir": folder / "made",
        "max_seq_length": 32,
        "max_predictions_per_seq": 4,
        "shard_megabytes": 0.004,
        "dupe_factor": 2,
        "progress": False,
        **options,
    }
    values = flags.FlagValues()
    create_pretraining_data.define_flags(values)
    values(["create", *(f"--{name}={value}" for name, value in arguments.items())])
    create_pretraining_data.run(values)
    return folder


@pytest.fixture(scope="module", params=MADE)
def made(request, tmp_path_factory):
    """The folder of a corpus with its vocabulary and instances."""
    return make(tmp_path_factory.mktemp(request.param), **MADE[request.param])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """The same with next sentences, for tests that change nothing."""
    return make(tmp_path_factory.mktemp("pairs"))


def inspect(*names, **options):
    values = flags.FlagValues()
    inspect_pretraining_data.define_flags(values)
    values(["inspect", *(f"--{name}={value}" for name, value in options.items())])
    inspect_pretraining_data.run([str(name) for name in names], values)


def table(capsys, *names, **options):
    inspect(*names, json=True, **options)
    return json.loads(capsys.readouterr().out)


def realised(capsys, *names, **options):
    return {name: row["realised"] for name, row in table(capsys, *names, **options)["table"].items()}


def all_records(folder):
    paths = sorted((folder / "made").glob("*.tfrecord"))
    for path in paths:
        compression = "GZIP" if path.read_bytes()[:2] == b"\x1f\x8b" else None
        yield from map(features, records(path, compression))


def slow_table(folder):
    """The table, an instance and a token after the other."""
    lists, sums, before = collections.defaultdict(list), collections.Counter(), collections.Counter()
    for record in all_records(folder):
        ids = record.get("input_ids", record.get("input_word_ids"))
        segments = record.get("segment_ids", record.get("input_type_ids"))
        length = sum(record["input_mask"])
        masked = [n for n, weight in enumerate(record["masked_lm_weights"]) if weight]
        labels = {record["masked_lm_positions"][n]: record["masked_lm_ids"][n] for n in masked}
        text = [labels.get(place, token) for place, token in enumerate(ids)]
        for place, label in labels.items():
            kind = "kept" if ids[place] == label else "as_mask" if VOCABULARY[ids[place]] == "[MASK]" else "as_random"
            sums[kind] += 1
        for name, key in (("instance", tuple(ids)), ("text", tuple(text))):
            sums[f"repeated_{name}s"] += before[name, key] > 0
            before[name, key] += 1
        lists["length"].append(length)
        lists["first_segment"].append(segments[:length].count(0) - 2)
        lists["second_segment"].append(max(segments[:length].count(1) - 1, 0))
        lists["masked_tokens"].append(len(masked))
        sums[f"label_{record['next_sentence_labels'][0]}"] += 1
        sums["unknown"] += sum(VOCABULARY[token] == "[UNK]" for token in text)
        for word in words_of([VOCABULARY[token] for token in text[:length]]):
            if len(word) > 1 and labels.keys() & set(word):
                sums["masked_words"] += 1
                sums["whole_words"] += labels.keys() >= set(word)
    return lists, sums


def words_of(tokens):
    """Lists of the places of each word."""
    words = []
    for place, token in enumerate(tokens):
        if token.startswith("##") and tokens[place - 1] not in ("[CLS]", "[SEP]"):
            words[-1].append(place)
        else:
            words.append([place])
    return words


def test_the_table_is_what_a_slow_count_finds(made, capsys):
    found = realised(capsys, made / "made", vocab_file=made / "vocab.txt", sample=0)
    lists, sums = slow_table(made)
    number, tokens, masked = len(lists["length"]), sum(lists["length"]), sum(lists["masked_tokens"])
    assert found["instances"] == number > 50
    for name, values in lists.items():
        assert found[name] == {
            "mean": pytest.approx(statistics.mean(values)),
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
        }
    most = read_sidecar(str(next((made / "made").glob("*.tfrecord"))))["max_predictions"]
    assert found["at_most_masked"] == lists["masked_tokens"].count(most) / number
    assert found["real_tokens"] == pytest.approx(tokens / (32 * number))
    assert found["masking_rate"] == found["masking_rate_capped"] == masked / tokens
    for kind in ("as_mask", "as_random", "kept"):
        assert found[kind] == sums[kind] / masked
    for name in ("repeated_instances", "repeated_texts"):
        assert found[name] == sums[name] / number
    special = sum(3 if second else 2 for second in lists["second_segment"])
    assert found["unknown_tokens"] == pytest.approx(sums["unknown"] / (tokens - special))
    assert found["whole_words"] == pytest.approx(sums["whole_words"] / sums["masked_words"])
    if any(lists["second_segment"]):
        assert [found["label_0"], found["label_1"]] == [sums["label_0"] / number, sums["label_1"] / number]
    else:
        assert "label_0" not in found
    assert "masked_specials" not in found


def test_what_was_asked_for_stands_beside(made, capsys):
    rows = table(capsys, made / "made", vocab_file=made / "vocab.txt", sample=0)["table"]
    settings = read_sidecar(str(next((made / "made").glob("*.tfrecord"))))
    asked = {name: row["asked_for"] for name, row in rows.items()}
    assert asked["length"] == 32
    assert asked["masked_tokens"] == settings["max_predictions"]
    assert asked["masking_rate"] == settings["masking_rate"]
    assert (asked["as_mask"], asked["as_random"]) == (settings["mask_share"], settings["random_share"])
    assert asked["kept"] == pytest.approx(1 - settings["mask_share"] - settings["random_share"])
    assert asked["whole_words"] == (1 if settings["whole_words"] else None)
    assert asked["repeated_texts"] is asked["unknown_tokens"] is None
    for name in ("as_mask", "as_random", "kept"):
        assert rows[name]["realised"] == pytest.approx(asked[name], abs=0.1)
    planned = sum(
        min(settings["max_predictions"], max(1, round(settings["masking_rate"] * length)))
        for length in slow_table(made)[0]["length"]
    )
    assert asked["masking_rate_capped"] == pytest.approx(planned / sum(slow_table(made)[0]["length"]))
    if settings["whole_words"]:
        assert rows["whole_words"]["realised"] == 1
    else:
        assert rows["masking_rate"]["realised"] == pytest.approx(asked["masking_rate_capped"])


def test_what_made_them_is_printed(made, capsys):
    inspect(made / "made")
    lines = capsys.readouterr().out.splitlines()
    shards = sorted((made / "made").glob("*.tfrecord"))
    facts = [read_sidecar(str(path)) for path in shards]
    assert lines[0] == f"{len(shards)} file{'s' * (len(shards) > 1)} of instances, such as {shards[0]}"
    printed = dict(line.split(maxsplit=1) for line in lines[1 : lines.index("")])
    assert printed["vocabulary_sha256"] == facts[0]["vocabulary_sha256"]
    assert (printed["sequence_length"], printed["seed"], printed["mode"]) == ("32", "12345", "streaming")
    assert printed["copies"] == "2"
    assert printed["next_sentence"] == facts[0]["next_sentence"]
    assert printed["instances"] == f"{sum(each['instances'] for each in facts):,}"
    for name in ("documents", "tokens"):  # of a text, however many copies there are
        assert printed[name] == f"{sum(each[name] for each in facts if each['copy'] == 0):,}"
    assert not {"text", "shard", "copy", "bytes"} & set(printed)


def test_instances_are_shown_in_words(pairs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    inspect(pairs / "made", vocab_file=pairs / "vocab.txt", instances=2)
    output = capsys.readouterr().out
    blocks = output.split("\n\n")[1:-1]
    assert [block.split(" of ")[0] for block in blocks] == ["instance 1", "instance 2"]
    for block, record in zip(blocks, all_records(pairs), strict=False):
        lines = block.splitlines()
        assert max(map(len, lines[1:])) <= 80
        label = ("next", "random")[record["next_sentence_labels"][0]]
        assert lines[1].startswith(f"  {sum(record['input_mask'])} tokens of 32: ")
        assert lines[1].endswith(f"; next sentence: {label}")
        labels = dict(zip(record["masked_lm_positions"], record["masked_lm_ids"], strict=True))
        expected = [VOCABULARY[token] for token in record["input_ids"][: sum(record["input_mask"])]]
        for place, token in labels.items():
            if place:
                expected[place] = f"[{VOCABULARY[token]} → {expected[place]}]"
        assert " ".join(line[5:] for line in lines[3:]) == " ".join(expected)
    assert "--vocab_file" not in output


def test_without_a_vocabulary_ids_are_shown(pairs, capsys):
    inspect(pairs / "made", instances=1)
    output = capsys.readouterr().out
    ids = next(all_records(pairs))["input_ids"]
    assert f"a  {ids[0]} " in output
    assert "river" not in output
    assert "give --vocab_file for words" in output
    assert output.count("needs --vocab_file") == 3  # [MASK], [UNK], and words
    assert "that are [MASK] or another" in output


def test_instances_drawn_at_random(pairs, capsys):
    def shown(**options):
        inspect(pairs / "made", **{"instances": 6, **options})
        return [line for line in capsys.readouterr().out.splitlines() if line.startswith("instance ")]

    drawn = [shown(seed=seed) for seed in range(2)]
    assert drawn[0] == shown(seed=0)
    assert len({tuple(lines) for lines in drawn}) == 2
    assert all(len(set(lines)) == 6 for lines in drawn)
    assert len({line.split(" of ")[1] for lines in drawn for line in lines}) > 1
    assert [line.split(" of ")[0] for line in shown()] == [f"instance {number}" for number in range(1, 7)]
    assert len(shown(sample=3)) == 3
    assert shown(instances=0) == []


def test_a_sample(pairs, capsys):
    found = table(capsys, pairs / "made", sample=20)
    assert found["table"]["instances"]["realised"] == 20
    assert not found["all_instances_read"]
    inspect(pairs / "made", sample=20)
    assert "--sample=0 reads all" in capsys.readouterr().out
    inspect(pairs / "made")
    assert "--sample=0" not in capsys.readouterr().out
    assert table(capsys, pairs / "made")["all_instances_read"]


def test_json_is_all_that_is_printed(pairs, capsys):
    paths = sorted(map(str, (pairs / "made").glob("*.tfrecord")))
    found = table(capsys, *paths[:2])
    assert (found["files"], found["form"], found["compression"], found["sequence_length"]) == (2, "bert", ["none"], 32)
    assert found["made_by"]["seed"] == 12345
    assert found["made_by"]["instances"] == found["table"]["instances"]["realised"]
    assert found["files_without_description"] == found["files_without_instances"] == []
    assert found["table"]["as_mask"]["realised"] is None


def test_files_that_nothing_stands_beside(pairs, tmp_path, capsys):
    """As those of google-research/bert."""
    paths = sorted((pairs / "made").glob("*.tfrecord"))
    for path in paths:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    found, known = (table(capsys, folder, sample=0) for folder in (tmp_path, pairs / "made"))
    assert found["made_by"] is None
    assert len(found["files_without_description"]) == len(paths)
    assert {name: row["realised"] for name, row in found["table"].items()} == {
        name: row["realised"] for name, row in known["table"].items()
    }
    assert found["table"]["masking_rate"]["asked_for"] is None
    assert found["table"]["masking_rate_capped"]["asked_for"] is None
    inspect(tmp_path, vocab_file=pairs / "vocab.txt")
    output = capsys.readouterr().out
    assert f"nothing beside {len(paths)} of them says what made them, such as {tmp_path / paths[0].name}" in output
    assert "vocabulary_sha256" not in output
    assert "next sentence: random" in output


def test_a_part_of_the_shards_and_different_runs(pairs, tmp_path, capsys):
    path = sorted((pairs / "made").glob("*.tfrecord"))[0]
    number = len(list((pairs / "made").glob("*.tfrecord")))
    inspect(path)
    assert f"these are 1 of the {number} files that were made together" in capsys.readouterr().out
    for name, seed, rate in (("a", 1, 0.1), ("b", 2, 0.2)):
        (tmp_path / name).write_bytes(path.read_bytes())
        write_sidecar(str(tmp_path / name), {**read_sidecar(str(path)), "seed": seed, "masking_rate": rate})
    inspect(tmp_path)
    output = capsys.readouterr().out
    assert "seed                    1 and 2\n" in output
    assert "10.00% or 20.00%" in output
    assert merge_facts(describe_files([str(tmp_path / "a"), str(tmp_path / "b")]))["seed"] == [1, 2]


def test_instances_of_the_original(shared, tmp_path, capsys):
    """As google-research/bert made them, beside what its own numbers are."""
    golden = shared / "golden" / "pretraining_data"
    known = next(each for each in json.loads((golden / "manifest.json").read_text()) if "128_wwm" in each["name"])
    values = np.load(golden / f"{known['name']}.features.npz")
    from keras_bert.pretraining.records import FEATURE_NAMES, serialize
    from keras_bert.pretraining.shard_files import record_file

    with record_file(str(tmp_path / "tf_examples.tf_record")) as write:
        for record in serialize({name: values[golden_name] for name, golden_name in FEATURE_NAMES["bert"].items()}):
            write(record)
    vocabulary = shared / "data" / "vocab" / "bert-base-uncased-vocab.txt"
    found = realised(capsys, tmp_path, vocab_file=vocabulary, sample=0)
    assert found["instances"] == known["num_instances"]
    assert found["masking_rate"] == pytest.approx(values["masked_lm_weights"].sum() / values["input_mask"].sum())
    assert found["whole_words"] == 1
    assert found["label_1"] == pytest.approx(values["next_sentence_labels"].mean())


def test_masks_where_none_should_be_are_counted(pairs, tmp_path, capsys):
    from keras_bert.pretraining.records import serialize
    from keras_bert.pretraining.shard_files import record_file
    from tests.tools.instances.test_counts import instances

    with record_file(str(tmp_path / "a.tfrecord")) as write:
        for record in serialize(instances([([2, 5, 3, 6, 3], 3, [(0, 2), (1, 5), (1, 5)])])):
            write(record)
    inspect(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2:] for line in lines if line.startswith("masked places on")] == [["1", "0"], ["1", "0"]]


# The figure.


@pytest.mark.usefixtures("strict_matplotlib")
def test_the_figure(made, tmp_path, drawn, capsys):
    output = tmp_path / "new" / "report.png"
    inspect(made / "made", vocab_file=made / "vocab.txt", sample=0, output=output)
    assert capsys.readouterr().err == f"drawn to {output}\n"
    assert output.read_bytes().startswith(b"\x89PNG")
    assert os.listdir(output.parent) == ["report.png"]
    lists, sums = slow_table(made)
    lengths, masked, positions, segments, replaced, labels = drawn[0].axes
    for axes, values in ((lengths, [lists["length"]]), (masked, [lists["masked_tokens"]])):
        check_histograms(axes, values)
    check_histograms(segments, [lists["first_segment"], lists["second_segment"]])
    (shares,) = (patch.get_data().values for patch in positions.patches)
    assert (len(shares), shares[0]) == (32, 0)
    assert 0 < shares[1:].max() <= 1
    kinds = [sums[kind] / sum(lists["masked_tokens"]) for kind in ("as_mask", "as_random", "kept")]
    assert [bar.get_height() for bar in replaced.patches] == pytest.approx(kinds)
    number = len(lists["length"])
    assert [bar.get_height() for bar in labels.patches] == [sums["label_0"] / number, sums["label_1"] / number]


def check_histograms(axes, expected):
    assert len(axes.patches) == len(expected)
    for patch, values in zip(axes.patches, expected, strict=True):
        numbers, edges, _ = patch.get_data()
        assert numbers.tolist() == np.bincount(values, minlength=len(numbers)).tolist()
        assert edges[0] == -0.5


@pytest.mark.usefixtures("strict_matplotlib")
def test_a_figure_without_a_vocabulary_or_settings(tmp_path, pairs, drawn):
    path = next((pairs / "made").glob("*.tfrecord"))
    (tmp_path / "a").write_bytes(path.read_bytes())
    inspect(tmp_path / "a", output=tmp_path / "report.png")
    assert [label.get_text() for label in drawn[0].axes[4].get_xticklabels()] == ["[MASK] or another token", "kept"]
    assert drawn[0].axes[4].get_legend() is None


def test_no_figure_is_overwritten(pairs, tmp_path):
    output = tmp_path / "report.png"
    output.write_text("mine")
    with pytest.raises(FileExistsError, match="exists; give another name"):
        inspect(pairs / "made", output=output)
    assert output.read_text() == "mine"
    inspect(pairs / "made", output=output, overwrite=True)
    assert output.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"must end in \.png"):
        inspect(pairs / "made", output=tmp_path / "report.jpg")


# What is refused, or only counted.


def test_another_vocabulary_is_refused_with_both_hashes(pairs, tmp_path):
    other = write_vocabulary(tmp_path / "other.txt", [*VOCABULARY, "more"])
    facts = read_sidecar(str(next((pairs / "made").glob("*.tfrecord"))))
    with pytest.raises(ValueError, match=rf"is [0-9a-f]{{64}}, and that of the instances {facts['vocabulary_sha256']}"):
        inspect(pairs / "made", vocab_file=other)


def test_a_vocabulary_that_is_too_small_is_refused(pairs, tmp_path):
    path = next((pairs / "made").glob("*.tfrecord"))
    (tmp_path / "a").write_bytes(path.read_bytes())
    small = write_vocabulary(tmp_path / "small.txt", VOCABULARY[:8])
    with pytest.raises(ValueError, match=r"and they can be 0 to 7\. Give the vocabulary that made them"):
        inspect(tmp_path / "a", vocab_file=small)


def test_files_without_instances(pairs, tmp_path, capsys):
    path = next((pairs / "made").glob("*.tfrecord"))
    (tmp_path / "a").write_bytes(path.read_bytes())
    (tmp_path / "empty").touch()
    inspect(tmp_path / "a", tmp_path / "empty")
    assert f"1 of the files have no instance, such as {tmp_path / 'empty'}" in capsys.readouterr().out
    assert table(capsys, tmp_path / "a", tmp_path / "empty")["files_without_instances"] == [str(tmp_path / "empty")]
    with pytest.raises(ValueError, match=r"none of 1 files has an instance, such as .*empty"):
        inspect(tmp_path / "empty")


# The program.


PROGRAM = [sys.executable, "-m", "tools.inspect_pretraining_data"]


@pytest.mark.slow
def test_help_comes_at_once():
    started = time.process_time(), os.times().children_user
    answer = subprocess.run([*PROGRAM, "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert os.times().children_user - started[1] < 1
    assert "python -m tools.inspect_pretraining_data" in answer.stdout
    assert "--vocab_file" in answer.stdout


@pytest.mark.slow
def test_the_program(pairs, tmp_path):
    command = [*PROGRAM, pairs / "made", f"--vocab_file={pairs / 'vocab.txt'}"]
    answer = run_forked(command, cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert "\\u2192 [MASK]]" in answer.stdout
    answer = run_forked([*PROGRAM, tmp_path / "missing"], cwd=ROOT)
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith("tools.inspect_pretraining_data: no file of instances is named")


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(pairs):
    command = [*PROGRAM, pairs / "made", "--instances=2000"]
    with ForkedProgram(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout.readline()
        program.stdout.close()
        said = program.stderr.read()
    assert "Broken pipe" not in said
    assert "Traceback" not in said
