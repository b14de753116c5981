import numpy as np
import pytest
from absl import flags

import keras_bert
from tasks import distill
from tests.tasks import programs
from tests.tasks.programs import check_status, interrupt, read_weights
from tests.toys import VOCABULARY, toy_reviews

TEXTS, _ = toy_reviews(400, seed=5)


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    return file


def test_student_is_another_name_of_init_checkpoint():
    values = programs.parse(distill, teacher="teacher", student="student", text_files="a.txt", run_dir="run")
    assert values.init_checkpoint == "student"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_files": "a.txt", "temperature": 3}, "temperature has no effect with text_files"),
        ({"text_files": "a.txt", "text_column": "message"}, "text_column has no effect with text_files"),
        ({"train_file": "a.csv", "vector_weight": 1}, "vector_weight has no effect without text_files"),
        ({"text_files": "a.txt", "hidden_states": "last"}, "hidden_states must be STUDENT:TEACHER"),
    ],
)
def test_flags_without_effect(options, message):
    with pytest.raises(flags.IllegalFlagValueError, match=message):
        programs.parse(distill, teacher="teacher", student="student", run_dir="run", **options)


@pytest.mark.slow
def test_interrupted_distillation_resumes_to_the_same_weights(start, toy_checkpoint, text_file, tmp_path):
    command = ["tasks.distill", f"--teacher={toy_checkpoint}", f"--text_files={text_file}", "--eval_texts=40"]
    student = keras_bert.BertEncoder(
        len(VOCABULARY), 8, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32, seed=3
    )
    student.save_checkpoint(tmp_path / "student", keras_bert.BertTokenizer(VOCABULARY, lower_case=True))
    command += [f"--student={tmp_path / 'student'}", "--relation_weight=1", "--batch_size=8", "--epochs=4"]
    command += ["--max_seq_length=16", "--steps_per_execution=5", "--log_every=5", "--checkpoint_every=20"]
    whole = start(tmp_path / "whole", *command)
    check_status(whole, 0)
    assert interrupt(start(tmp_path / "parts", *command), 30) < 180
    check_status(start(tmp_path / "parts", *command), 0)
    np.testing.assert_array_equal(read_weights(tmp_path / "parts"), read_weights(tmp_path / "whole"))
    two = start(tmp_path / "two", *command, "--strategy=mirrored", "--num_logical_devices=2")
    check_status(two, 0)
    np.testing.assert_allclose(read_weights(tmp_path / "two"), read_weights(tmp_path / "whole"), atol=2e-3)
