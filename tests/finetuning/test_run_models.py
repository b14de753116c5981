import pytest

from keras_bert.finetuning.run_models import resolve_checkpoint, saved_results

DAMAGED = ["", "null", '{"folder": 1}', '{"metrics": [0.5]}', '{"metrics": {"f1": "0.5"}}', '{"score": {}}']


@pytest.mark.parametrize("best", DAMAGED)
def test_names_damaged_results(tmp_path, best):
    (tmp_path / "results.json").write_text(f'{{"best": {best}}}')
    problem = r"Expecting value|best is None|folder is 1|metrics is \[0.5\]|f1 is '0.5'|score is {}"
    for read in (resolve_checkpoint, lambda folder: saved_results(folder, None)):
        with pytest.raises(ValueError, match=rf"results.json is damaged: .*\(({problem}).*Restore the file"):
            read(tmp_path)
