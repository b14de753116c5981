import json

import pytest

from keras_bert.finetuning.fine_tuner import saved_recipe
from keras_bert.finetuning.run_models import resolve_checkpoint, saved_results

DAMAGED = ["", "null", '{"folder": 1}', '{"metrics": [0.5]}', '{"metrics": {"f1": "0.5"}}', '{"score": {}}']


@pytest.mark.parametrize("best", DAMAGED)
def test_names_damaged_results(tmp_path, best):
    (tmp_path / "results.json").write_text(f'{{"best": {best}}}')
    problem = r"Expecting value|best is None|folder is 1|metrics is \[0.5\]|f1 is '0.5'|score is {}"
    for read in (resolve_checkpoint, lambda folder: saved_results(folder, None)):
        with pytest.raises(ValueError, match=rf"results.json is damaged: .*\(({problem}).*Restore the file"):
            read(tmp_path)


@pytest.mark.parametrize("folder", ["..", "../another", "/etc", "a/../../b"])
def test_refuses_a_best_model_outside_the_run(tmp_path, folder):
    (tmp_path / "results.json").write_text(json.dumps({"best": {"folder": folder}}))
    with pytest.raises(ValueError, match=r"results.json is damaged: the best model must be in a folder of the run"):
        resolve_checkpoint(tmp_path)


def test_names_a_damaged_configuration(tmp_path):
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / "configuration.json").write_text(json.dumps({"epochs": "three"}))
    with pytest.raises(ValueError, match=r"configuration.json of the run.*is damaged: epochs must be float"):
        saved_recipe(tmp_path, None)
