import pytest

from keras_bert.finetuning.run_models import resolve_checkpoint, saved_results


def test_names_damaged_results(tmp_path):
    (tmp_path / "results.json").touch()
    for read in (resolve_checkpoint, lambda folder: saved_results(folder, None)):
        with pytest.raises(ValueError, match=r"results.json is damaged.*Expecting value"):
            read(tmp_path)
