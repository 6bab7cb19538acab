"""Option values that are empty, too large or no regular file are refused."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.array_files import read_npy, read_npz
from firmwright.base.errors import UsageError
from firmwright.cli.main import _parser, verbs

HUGE_HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }"


def test_no_option_takes_an_empty_value() -> None:
    for verb, parser in _parser(verbs()).verbs.items():
        for action in parser._actions:
            for word in (action.option_strings if action.nargs != 0 else ())[:1]:
                for empty in ("", " "):
                    with pytest.raises(UsageError, match="the value is empty"):
                        parser.parse_args([f"{word}={empty}"])
        if any(not action.option_strings for action in parser._actions):
            with pytest.raises(UsageError):
                parser.parse_args([""])
            assert verb


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--board", ""), "argument --board: the value is empty"),
        (("--boards-dir", os.devnull), "there is no such folder"),
        (("--boards-dir", "absent"), "there is no such folder"),
        (("--samples", "9" * 20), "expected an integer <= 2,147,483,647"),
        (("--samples", "2000000000"), "2,000,000,000 samples need"),
        (("--samples", "9" * 5000), "expected an integer >= 1"),
        (
            ("--timeout", "1e300"),
            "expected a number of seconds > 0 and <= 1,000,000,000",
        ),
    ],
)
def test_values_that_cannot_be_meant_are_refused(
    words: tuple[str, str], message: str, digits_path: Path, fw: Callable
) -> None:
    said = fw("verify", digits_path, *words)
    assert said.status == 2, said.err
    assert message in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "--partition"),
        ("compile", "--tuning"),
        ("compile", "--update-of"),
        ("compile", "-o", "project", "--main"),
        ("evaluate", "--data"),
        ("profile", "--baseline"),
        ("report", "--baseline"),
        ("run", "--input"),
        ("verify", "--expect"),
        ("compile", "--partition", "collage", "--partition-log"),
    ],
)
def test_devices_are_not_read_as_files(
    words: tuple[str, ...],
    digits_path: Path,
    fw: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    verb, *options = words
    said = fw(verb, digits_path, *options, os.devnull)
    assert said.status == 2, said.err
    assert "it is a device or pipe, not a file" in said.err


def test_a_binary_file_is_not_a_tuning_log(digits_path: Path, fw: Callable) -> None:
    said = fw("show", digits_path, "--tuning", digits_path)
    assert said.status == 2
    assert "this is not a tuning log: no line of it is a JSON object" in said.err


def npy_bytes(header: bytes, version: int = 1) -> bytes:
    size = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + bytes(64)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy_bytes(HUGE_HEADER), "requires 4,000,000,000,000 bytes, and 64 follow"),
        (npy_bytes(HUGE_HEADER.replace(b"(1000000", b"(-1000000")), "has the shape"),
        (npy_bytes(HUGE_HEADER.replace(b"<f4", b"<U0")), "has the shape"),
        (npy_bytes(HUGE_HEADER.replace(b"<f4", b"|O")), "it holds Python objects"),
        (npy_bytes(b"{" * 300), "the header of an array is damaged"),
        (npy_bytes(HUGE_HEADER + b" " * 20_000), "the header of an array is damaged"),
        (b"\x80\x04K\x01.", "it is no a"),
        (b"1,2,3\n", "it is no a"),
    ],
)
def test_damaged_arrays_are_named_without_advice_to_trust_them(
    data: bytes, message: str, tmp_path: Path
) -> None:
    array, archive, raw = tmp_path / "x.npy", tmp_path / "x.npz", tmp_path / "raw.npz"
    array.write_bytes(data)
    raw.write_bytes(data)
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("x.npy", data)
    for read, file in ((read_npy, array), (read_npz, archive)):
        with pytest.raises(UsageError, match=message) as caught:
            read(file)
        assert "pickle" not in str(caught.value)
        assert "trust" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        read_npz(raw)
    assert "pickle" not in str(caught.value)


@pytest.mark.parametrize(
    "dtype", ["int8", ">f4", "float64", "bool", "<U3", "complex64"]
)
def test_arrays_that_numpy_wrote_are_read_as_numpy_reads_them(
    dtype: str, tmp_path: Path
) -> None:
    shapes = ((), (0,), (2, 3), (3, 0, 2))
    arrays = {str(k): np.ones(shape).astype(dtype) for k, shape in enumerate(shapes)}
    arrays["columns"] = np.asfortranarray(np.arange(6).reshape(2, 3).astype(dtype))
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    np.save(tmp_path / "x.npy", arrays["columns"])
    with np.load(tmp_path / "x.npz") as expected:
        found = read_npz(tmp_path / "x.npz")
        assert list(found) == expected.files
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name], strict=True)
    np.testing.assert_array_equal(
        read_npy(tmp_path / "x.npy"), arrays["columns"], strict=True
    )
