"""A model has the bytes of its file; a saved module finds them in the same folder."""

from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.flows.model.model import load_model, partition, save_module, write_file


def test_model_file_is_its_own_source(digits_path: Path):
    model = load_model(digits_path)
    assert model.source == digits_path.read_bytes()
    assert model.name == "digits"
    assert load_model(digits_path, name="other").name == "other"


def test_saved_module_finds_its_source_in_the_same_folder(
    digits_path: Path, tmp_path: Path
):
    module = load_model(digits_path).module
    save_module(module, tmp_path / "saved.fwir")
    assert load_model(tmp_path / "saved.fwir").source is None
    (tmp_path / "broken.tflite").write_bytes(b"something else")
    (tmp_path / "under_another_name.tflite").write_bytes(digits_path.read_bytes())
    found = load_model(tmp_path / "saved.fwir")
    assert found.source == digits_path.read_bytes()
    assert found.module == module


def test_reference_model_must_have_the_recorded_hash(digits_path: Path, tmp_path: Path):
    save_module(load_model(digits_path).module, tmp_path / "saved.fwir")
    assert (
        load_model(tmp_path / "saved.fwir", reference_model=digits_path).source
        is not None
    )
    other = digits_path.with_name("digits_float.tflite")
    with pytest.raises(UsageError, match="its hash differs"):
        load_model(tmp_path / "saved.fwir", reference_model=other)


def test_unreadable_and_unwritable_paths_are_usage_errors(tmp_path: Path):
    with pytest.raises(UsageError, match="the model cannot be read: No such file"):
        load_model(tmp_path / "absent.tflite")
    with pytest.raises(UsageError, match="the model cannot be read: Is a directory"):
        load_model(tmp_path)
    with pytest.raises(UsageError, match="the file cannot be written"):
        write_file(tmp_path / "no" / "folder", b"")


def test_partition_writes_the_target_into_the_module(digits_path: Path):
    model = load_model(digits_path)
    module = partition(model, "cortex-m -mcpu=cortex-m7").module
    assert str(module.targets["cpu"]) == "cortex-m -mcpu=cortex-m7"
    assert not model.module.targets
