"""Files with data are never a way to run code."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.array_files import read_npz
from firmwright.base.errors import BoardError, FirmwrightError
from firmwright.base.resources import boards_dir
from firmwright.boards import load_board
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.labeled_data import read_dataset


class Planted:
    """An object that creates a file when it is read from a pickle."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self._file), "w")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "PWNED"


def pickled_array(mark: Path) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([Planted(mark)], dtype=object), allow_pickle=True)
    return out.getvalue()


def test_arrays_are_read_without_pickle(
    mark: Path, tmp_path: Path, digits_path: Path
) -> None:
    archive, array = tmp_path / "x.npz", tmp_path / "x.npy"
    np.savez(archive, input_1=np.array([Planted(mark)], dtype=object))
    array.write_bytes(pickled_array(mark))
    raw = tmp_path / "raw.npz"
    raw.write_bytes(pickle.dumps(Planted(mark)))
    inputs = compile_for(load_model(digits_path)).module.io.inputs
    for file in (archive, array, raw):
        with pytest.raises(FirmwrightError):
            read_npz(file)
        with pytest.raises(FirmwrightError):
            read_dataset(file, inputs)
    labels = tmp_path / "labels.npy"
    labels.write_bytes(pickled_array(mark))
    np.save(tmp_path / "good.npy", np.zeros((1, 8, 8, 1), np.float32))
    with pytest.raises(FirmwrightError):
        read_dataset(tmp_path / "good.npy", inputs, labels=labels)
    assert not mark.exists()


def test_inputs_results_and_fixed_inputs_of_a_verb_are_data(
    mark: Path, tmp_path: Path, digits_path: Path, fw: Callable
) -> None:
    array = tmp_path / "x.npy"
    array.write_bytes(pickled_array(mark))
    assert fw("run", digits_path, "--input", array).status == 2
    assert fw("verify", digits_path, "--expect", array).status == 2
    assert fw("inspect", digits_path, "--fix-input", f"x={array}").status == 2
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        '{"targets": "x", "__reduce__": ["os.system", "touch PWNED"]}',
        "__import__('os').system('touch PWNED')",
        '{"regions": [{"target": "npu; touch PWNED"}]}',
    ],
)
def test_logs_and_partitions_are_data(
    text: str,
    tmp_path: Path,
    digits_path: Path,
    fw: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("part.json", "log.jsonl"):
        Path(name).write_text(text)
    assert fw("compile", digits_path, "--partition", "part.json").status == 2
    said = fw("compile", digits_path, "--tuning", "log.jsonl")
    is_json = text.startswith("{")
    assert said.status == (0 if is_json else 2)
    refusal = "ignored 1 of 1 lines" if is_json else "this is not a tuning log"
    assert f"log.jsonl: {refusal}" in said.err
    assert not Path("PWNED").exists()


def test_options_in_metadata_run_nothing(
    tmp_path: Path, digits_path: Path, fw: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('PWNED', 'w')\ndef f(m):\n    return m\n")
    assert fw("compile", digits_path, "-o", "out").status == 0
    facts = json.loads(Path("out/metadata.json").read_text())
    step = {"name": "f", "after": "import", "origin": "evil:f"}
    for options in ({"passes": [step]}, {"board_dirs": ["."]}, {"tuning": "evil.py"}):
        changed = {**facts, "options": {**facts["options"], **options}}
        Path("out/metadata.json").write_text(json.dumps(changed))
        assert fw("reproduce", "out", digits_path).status == 2
    assert not Path("PWNED").exists()


def test_options_in_evidence_run_nothing(
    tmp_path: Path, digits_path: Path, monkeypatch: pytest.MonkeyPatch, fw: Callable
) -> None:
    """The record was made by another version, so that nothing is built."""
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("open('PWNED', 'w')\ndef f(m):\n    return m\n")
    file = Path(__file__).parents[2] / "docs" / "evidence" / "digits-mps2-an386.json"
    facts = json.loads(file.read_text())
    facts["tools"]["firmwright"] = "99"
    step = {"name": "f", "after": "import", "origin": "evil:f"}
    section = ["code", '.text"))) int pwned; //']
    for options in (
        {"passes": [step]},
        {"board_dirs": ["."]},
        {"tuning": "evil.py"},
        {"update_of": "evil.py"},
        {"sections": [section]},
        {"license": "*/ int pwned;"},
        {"target": "cortex-m -mcpu=../evil"},
        {"planner": "evil:f"},
    ):
        Path("evidence.json").write_text(json.dumps({**facts, "options": options}))
        said = fw("evidence", "check", "evidence.json", digits_path, "--json")
        assert said.status in (0, 1)
        found = {row["statement"] for row in said.json["findings"]}
        assert said.status == ("options" in found)
    assert not Path("PWNED").exists()


@pytest.mark.parametrize(
    "change",
    [
        ('program = "qemu-system-arm"', 'program = "./evil"'),
        ('machine = "mps2-an386"', 'machine = "mps2-an386,file=x"'),
        ('machine = "mps2-an386"', 'machine = "mps2-an386"\nargs = ["-semihosting"]'),
        (
            'machine = "mps2-an386"',
            'machine = "mps2-an386"\nargs = ["-plugin", "x.so"]',
        ),
    ],
)
def test_a_board_file_starts_no_program_and_gives_firmware_no_access(
    change: tuple[str, str], tmp_path: Path
) -> None:
    text = (boards_dir() / "mps2-an386" / "board.toml").read_text()
    assert change[0] in text
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "board.toml").write_text(
        text.replace(*change).replace('name = "mps2-an386"', 'name = "evil"')
    )
    with pytest.raises(BoardError, match=r"--trust (qemu-system-arm|\./evil)"):
        load_board("evil", [tmp_path])
