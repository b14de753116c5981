import json

import pytest

from keras_bert.training.run_dir import RunDirectory, read_configuration, write_json

CONFIGURATION = {"learning_rate": 5e-5, "labels": ["a", "b"], "seed": None}


def test_a_new_folder_is_made_and_the_same_configuration_resumes(tmp_path):
    folder = tmp_path / "runs" / "first"
    assert not RunDirectory(folder, CONFIGURATION).existed
    assert read_configuration(folder) == CONFIGURATION
    assert RunDirectory(folder, {**CONFIGURATION, "labels": ("a", "b")}).existed


def test_another_configuration_is_refused_and_what_differs_is_named(tmp_path):
    RunDirectory(tmp_path / "run", CONFIGURATION)
    with pytest.raises(FileExistsError) as error:
        RunDirectory(tmp_path / "run", {"learning_rate": 3e-5, "labels": ["a", "b"], "epochs": 2})
    assert "learning_rate is 3e-05, there it was 5e-05" in str(error.value)
    assert "epochs is 2, there it was None" in str(error.value)
    assert "labels" not in str(error.value)
    assert read_configuration(tmp_path / "run") == CONFIGURATION


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(FileExistsError, match=r"is not empty and is not the folder of a run \(it has no run.json\)"):
        RunDirectory(tmp_path, CONFIGURATION)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_log(tmp_path):
    run = RunDirectory(tmp_path / "run", CONFIGURATION)
    run.log({"event": "train", "step": 1, "loss": 0.5})
    run.log({"event": "train", "step": 2, "loss": float("nan")})
    with open(run.path / "log.jsonl", "a") as log:
        log.write('{"event": "tr')  # the process was killed here
    assert run.read_log() == [
        {"event": "train", "step": 1, "loss": 0.5},
        {"event": "train", "step": 2, "loss": None},
    ]
    run.log({"event": "resumed", "step": 2})
    assert run.read_log()[-1] == {"event": "resumed", "step": 2}


def test_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not the folder of a run"):
        read_configuration(tmp_path)


def test_json_is_written_whole_or_not_at_all(tmp_path):
    file = tmp_path / "results.json"
    write_json(file, {"label": "naïve"})
    with pytest.raises(TypeError):
        write_json(file, {"label": object()})
    assert json.loads(file.read_text(encoding="utf-8")) == {"label": "naïve"}
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
