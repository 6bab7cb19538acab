"""Access checking: a correct plan gives no report, an error of one byte gives one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from firmwright.base.errors import InternalError, UsageError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.access_checking import (
    CheckedLibrary,
    build_checked_library,
    open_checked_session,
)
from firmwright.flows.verify.verification import verify
from firmwright.ir.tir.plan import RelocatedBuffer
from firmwright.pipeline import Compilation
from firmwright.usmp.redzones import REDZONE_BYTES, insert_redzones

pytestmark = pytest.mark.host_c
M4, M55 = "cortex-m -mcpu=cortex-m4", "cortex-m -mcpu=cortex-m55"


def digits_for(path: Path, target: str, **options: object) -> Compilation:
    return compile_for(load_model(path), "host", target=target, **options)


@pytest.fixture(scope="module")
def on_m4(tmp_path_factory: pytest.TempPathFactory) -> CheckedLibrary:
    path = Path(__file__).parents[3] / "examples" / "01_digits" / "digits.tflite"
    return build_checked_library(
        digits_for(path, M4), tmp_path_factory.mktemp("watched")
    )


def fault(library: CheckedLibrary, moved: list[RelocatedBuffer]) -> str:
    """Return the report of a run; "" without errors."""
    batch = generate_samples(library.compiled.module.io.inputs, 1)
    with library.session(moved) as session:
        try:
            session.run_all(batch.samples)
        except InternalError as error:
            return str(error)
    return ""


def shifted(library: CheckedLibrary, name: str, by: int) -> list[RelocatedBuffer]:
    assert name in {each.name for each in library.moved}
    return [
        replace(each, planned=each.planned + by) if each.name == name else each
        for each in library.moved
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", [M4, M55])
def test_correct_plan_runs_bit_exact_without_reports(
    digits_path: Path, target: str
) -> None:
    found = verify(
        digits_for(digits_path, target), samples=2, open_with=open_checked_session
    )
    assert (found.samples, found.mismatches) == (2, 0)


def test_overlap_by_one_byte_is_reported_with_both_buffers(
    on_m4: CheckedLibrary,
) -> None:
    said = fault(on_m4, shifted(on_m4, "depthwise_conv_2d_1", -1))
    assert (
        "operator 1 (depthwise_conv2d, depthwise_conv_2d_1) reads byte 1023 of conv_2d_1"
        in said
    )
    assert "operator 1 (depthwise_conv2d, depthwise_conv_2d_1) has overwritten" in said
    assert "with depthwise_conv_2d_1" in said


def wrong_plans(library: CheckedLibrary) -> Iterator[tuple[str, list[RelocatedBuffer]]]:
    """Each buffer with another right below or above it, moved into that by a byte."""
    assert library.compiled.module.plan is not None
    for each in library.moved:
        for other in library.moved:
            if other.planned == each.planned + each.size_bytes:
                yield each.name, shifted(library, each.name, 1)


def test_most_overlaps_with_a_neighbor_are_caught(on_m4: CheckedLibrary) -> None:
    """Not all: neighbours need not be alive at the same time."""
    caught = {name: fault(on_m4, moved) for name, moved in wrong_plans(on_m4)}
    assert sum("has overwritten" in said for said in caught.values()) >= 5, caught


def test_plan_with_all_buffers_at_one_offset_is_caught(on_m4: CheckedLibrary) -> None:
    assert "has overwritten" in fault(
        on_m4, [replace(m, planned=0) for m in on_m4.moved]
    )


def test_out_of_bounds_access_is_caught_at_the_byte(on_m4: CheckedLibrary) -> None:
    short = [
        replace(m, size_bytes=m.size_bytes - 1) if m.name == "conv_2d_1" else m
        for m in on_m4.moved
    ]
    said = fault(on_m4, short)
    assert (
        "accesses pool sram outside its buffers: 0 bytes beyond the end of conv_2d_1"
        in said
    )


def test_read_of_an_unwritten_byte_is_caught(on_m4: CheckedLibrary) -> None:
    """The caller's input counts as written, but not under another buffer's name."""
    inputs = on_m4.compiled.module.io.inputs
    swapped = {inputs[0].buffer: "digit", "digit": inputs[0].buffer}
    moved = [replace(m, name=swapped.get(m.name, m.name)) for m in on_m4.moved]
    assert "which has not been written" in fault(on_m4, moved)


def test_relocated_buffers_have_gaps_and_keep_planned_offsets(
    digits_path: Path,
) -> None:
    module = digits_for(digits_path, M4).module
    assert module.plan is not None
    _, moved = insert_redzones(module)
    ends = sorted((m.offset, m.offset + m.size_bytes) for m in moved)
    assert all(b[0] - a[1] >= REDZONE_BYTES for a, b in pairwise(ends))
    planned = {place.offset for place in module.plan.placements.values()}
    assert {m.planned for m in moved} == planned
    assert len(moved) == len(module.plan.placements)


def test_access_checking_needs_the_host(digits_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match="memory accesses are checked on the host only, not on mps2-an386",
    ):
        open_checked_session(compile_for(load_model(digits_path), "mps2-an386"))
