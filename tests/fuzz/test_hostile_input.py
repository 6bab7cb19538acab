"""Tests that some thousand mutated external files yield a value or a clear error.

`python -m tests.fuzz.fuzz_corpus` runs any number of cases. Its findings are kept here
as cases.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firmwright.base.array_files import read_npz
from firmwright.base.errors import DeviceError, FirmwrightError, ModelError
from firmwright.base.json_input import parse_json
from firmwright.base.recursion import raise_recursion_limit
from firmwright.extensions.tune.log_writer import RegionCostLog
from tests.fuzz import fuzz_corpus
from tests.fuzz.readers import READERS, Reader

CASES, CASES_DEEP = 150, 20_000
EXAMPLES = 40
FOUND = Path(__file__).parent / "found"
"""Files of past findings, named READER-DIGEST."""


@pytest.fixture(autouse=True)
def _deep_trees() -> None:
    """Raise the recursion limit before an example starts, as every reader does."""
    raise_recursion_limit()


def named(reader: Reader) -> str:
    return reader.name


@pytest.mark.parametrize("reader", READERS, ids=named)
def test_the_seed_files_are_valid(reader: Reader) -> None:
    if reader.name == "texts by hand":
        return  # they are there to be wrong, and know other operators
    for data in reader.seeds():
        reader.read(data)


@pytest.mark.host_c
@pytest.mark.parametrize("reader", READERS, ids=named)
def test_a_mutated_file_yields_a_value_or_an_error(reader: Reader, deep: bool) -> None:
    found = fuzz_corpus.run_block(reader.name, 1, 0, CASES_DEEP if deep else CASES)
    assert not found.findings, found.findings
    assert found.accepted < found.cases, "nothing was bent so that it mattered"


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data(), reader=st.sampled_from([r for r in READERS if r.share > 3]))
def test_fragments_and_noise_yield_a_value_or_an_error(
    data: Any, reader: Reader
) -> None:
    whole = data.draw(st.sampled_from(list(reader.seeds())))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    noise = data.draw(
        st.one_of(st.binary(max_size=40), st.text(max_size=40).map(str.encode))
    )
    _, what = fuzz_corpus.end_of(reader, whole[:first] + noise + whole[last:])
    assert not what


@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.name)
def test_past_findings_stay_fixed(path: Path) -> None:
    reader = next(r for r in READERS if path.name.startswith(r.name.replace(" ", "-")))
    _, what = fuzz_corpus.end_of(reader, path.read_bytes())
    assert not what


def test_a_finding_is_reduced_and_keeps_its_error() -> None:
    def read(data: bytes) -> None:
        if b"!" in data:
            raise KeyError("!")
        raise ModelError("it is none.")

    reader = Reader("a broken one", lambda: [b"seed"], lambda data, rng: data, read, 1)
    _, what = fuzz_corpus.end_of(reader, b"some text! and more of it")
    assert what.startswith("KeyError")
    assert (
        fuzz_corpus.smaller(
            reader, b"some text! and more of it", what.partition(": ")[0]
        )
        == b"!"
    )
    assert fuzz_corpus.end_of(reader, b"some text") == (False, "")


def test_the_timeout_cannot_be_caught() -> None:
    def read() -> None:
        while True:
            with contextlib.suppress(Exception):
                sum(range(1000))

    with pytest.raises(fuzz_corpus.TooLongError), fuzz_corpus.bounded(0.05):
        read()


@pytest.mark.parametrize("brackets", ["[", '{"a":'])
def test_deeply_nested_json_is_rejected(brackets: str) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json(brackets * 100_000)


def test_a_partition_log_keeps_only_valid_lines(tmp_path: Path) -> None:
    (reader,) = (reader for reader in READERS if reader.name == "log of parts")
    (whole,) = reader.seeds()
    path = tmp_path / "parts.log"
    path.write_bytes(
        b'\xff\xfe\n{"schema": "part-1"}\n' + whole.replace(b": 1,", b': "1",') + b"\n"
    )
    with RegionCostLog(path) as log:
        assert len(log._costs) == 1


def test_an_archive_of_arrays_with_a_password_is_refused(tmp_path: Path) -> None:
    (reader,) = (reader for reader in READERS if reader.name == "arrays")
    data = bytearray(reader.seeds()[0])
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1  # encrypted
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(FirmwrightError, match=r"not an \.npz file"):
        read_npz(tmp_path / "x.npz")


def test_a_device_with_a_tiny_buffer_is_an_error() -> None:
    (reader,) = (reader for reader in READERS if reader.name == "answers of a device")
    with pytest.raises(DeviceError, match="the minimum is 32"):
        reader.read((FOUND / "answers-of-a-device-b82f3932").read_bytes())
