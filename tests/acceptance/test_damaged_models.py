"""Damaged models through everything: import, compile, build, run, compare with LiteRT.

Each model ends in a clear error or is bit-exact; nothing crashes, hangs or computes
wrong values.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firmwright.base.errors import FirmwrightError
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation, Options, compile_model, load_module_bytes
from tests.fuzz.damage import mutants, structure_places

HANG_S = 120
CLEAN = {"bad_model", "unsupported", "tool_failed", "does_not_fit"}
SEEDS = {"digits": 20, "kws": 21}

Opener = Callable[[Compilation], ModelSession]


@pytest.mark.host_c
@pytest.mark.parametrize(
    "name",
    ["digits", pytest.param("kws", marks=[pytest.mark.models, pytest.mark.deep])],
)
def test_damaged_model_ends_in_an_error_or_is_verified(
    name: str, model_file: Callable[[str], Path], quickly: Opener, deep: bool
) -> None:
    data = model_file(name).read_bytes()
    places = structure_places(data)
    if deep:
        places = [*places, *range(0, len(data), 7)]  # weights too
    ends: Counter[str] = Counter()
    for label, changed in mutants(data, places, SEEDS[name], 100 if deep else 9):
        with bounded(label):
            ends[end_of(changed, label, open_session if deep else quickly)] += 1
    assert ends.keys() <= CLEAN | {"verified"}, ends
    assert ends["bad_model"] > 0, ends
    assert ends["verified"] > 0, ends


def end_of(data: bytes, label: str, opener: Opener) -> str:
    """`verified`, or the code of the error; nothing but our own errors may come out."""
    try:
        module = load_module_bytes(data, "damaged.tflite", name="damaged")
        done = compile_model(module, Options(), source=data)
        found = verify(done, samples=4, open_with=opener)
    except FirmwrightError as error:
        return error.code
    except BaseException as error:
        error.add_note(label)
        raise
    assert found.mismatches == 0, f"{label}: {found}"
    return "verified"


@contextmanager
def bounded(label: str) -> Iterator[None]:
    """Fails instead of hanging."""

    def fail(*_: object) -> None:
        pytest.fail(f"{label} hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(HANG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
