"""What others wrote, bent by form, ends in a value or a clear error: some thousand cases.

`python tests/fuzz/million.py` has as many as one likes. What it found stays here as a case.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import million
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from readers import READERS, Reader

from firmwright.base.errors import DeviceError, FirmwrightError, ModelError
from firmwright.base.json_input import parse_json
from firmwright.base.recursion import raise_recursion_limit
from firmwright.flows.sample_batches import read_npz
from firmwright.tune.region_cost_log import RegionCostLog

CASES, CASES_DEEP = 150, 20_000
EXAMPLES = 40
FOUND = Path(__file__).parent / "found"
"""Files that something once choked on, as READER-DIGEST."""


@pytest.fixture(autouse=True)
def _deep_trees() -> None:
    """As every reader of models allows them, for good: not in the middle of an example."""
    raise_recursion_limit()


def named(reader: Reader) -> str:
    return reader.name


@pytest.mark.parametrize("reader", READERS, ids=named)
def test_the_files_that_are_bent_are_sound(reader: Reader) -> None:
    if reader.name == "texts by hand":
        return  # they are there to be wrong, and know other operators
    for data in reader.seeds():
        reader.read(data)


@pytest.mark.host_c
@pytest.mark.parametrize("reader", READERS, ids=named)
def test_a_bent_file_ends_in_a_value_or_an_error(reader: Reader, deep: bool) -> None:
    found = million.run_block(reader.name, 1, 0, CASES_DEEP if deep else CASES)
    assert not found.findings, found.findings
    assert found.accepted < found.cases, "nothing was bent so that it mattered"


@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(data=st.data(), reader=st.sampled_from([r for r in READERS if r.share > 3]))
def test_pieces_of_sound_files_and_noise_end_so_too(data: Any, reader: Reader) -> None:
    whole = data.draw(st.sampled_from(list(reader.seeds())))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    noise = data.draw(st.one_of(st.binary(max_size=40), st.text(max_size=40).map(str.encode)))
    _, what = million.end_of(reader, whole[:first] + noise + whole[last:])
    assert not what


@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.name)
def test_what_was_found_once_ends_as_it_should_now(path: Path) -> None:
    reader = next(r for r in READERS if path.name.startswith(r.name.replace(" ", "-")))
    _, what = million.end_of(reader, path.read_bytes())
    assert not what


def test_a_finding_is_made_smaller_and_kept_as_what_it_was() -> None:
    def read(data: bytes) -> None:
        if b"!" in data:
            raise KeyError("!")
        raise ModelError("it is none.")

    reader = Reader("a broken one", lambda: [b"seed"], lambda data, rng: data, read, 1)
    _, what = million.end_of(reader, b"some text! and more of it")
    assert what.startswith("KeyError")
    assert million.smaller(reader, b"some text! and more of it", what.partition(": ")[0]) == b"!"
    assert million.end_of(reader, b"some text") == (False, "")


def test_what_takes_too_long_is_ended_whatever_it_catches() -> None:
    def read() -> None:
        while True:
            with contextlib.suppress(Exception):
                sum(range(1000))

    with pytest.raises(million.TooLongError), million.bounded(0.05):
        read()


@pytest.mark.parametrize("brackets", ["[", '{"a":'])
def test_json_nested_by_the_thousand_is_no_json(brackets: str) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json(brackets * 100_000)


def test_a_log_of_parts_keeps_only_lines_of_its_form(tmp_path: Path) -> None:
    (reader,) = (reader for reader in READERS if reader.name == "log of parts")
    (whole,) = reader.seeds()
    path = tmp_path / "parts.log"
    path.write_bytes(
        b'\xff\xfe\n{"schema": "part-1"}\n' + whole.replace(b": 1,", b': "1",') + b"\n"
    )
    with RegionCostLog(path) as log:
        assert len(log._known) == 1


def test_an_archive_of_arrays_with_a_password_is_refused(tmp_path: Path) -> None:
    (reader,) = (reader for reader in READERS if reader.name == "arrays")
    data = bytearray(reader.seeds()[0])
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1  # encrypted
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(FirmwrightError, match=r"not an \.npz file"):
        read_npz(tmp_path / "x.npz")


def test_a_device_that_takes_next_to_nothing_is_an_error() -> None:
    (reader,) = (reader for reader in READERS if reader.name == "answers of a device")
    with pytest.raises(DeviceError, match="32 are the least"):
        reader.read((FOUND / "answers-of-a-device-d6c2a45f").read_bytes())
