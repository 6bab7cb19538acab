"""Random layers with every schedule of every family, in portable C on the host.

Each kernel must equal LiteRT (`BUILTIN_REF`) and TFLM bit for bit, for whole layers and
for bands of rows. It must not write outside its arguments or depend on bytes around
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.conformance.case_tables import conformance_cases
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Function
from firmwright.schedules.registry import SCHEDULES
from tests.conformance.core_families import TARGETS
from tests.conformance.expected_results import number, run_oracles
from tests.conformance.host_runner import (
    FAST,
    QUICKLY_BUILT,
    SANITIZED,
    UNDEFINED,
    build,
    find_failures,
    make_runs,
)
from tests.conformance.kernel_batches import Batch, import_cases, make_batch
from tests.conformance.random_layers import layer
from tests.conformance.random_other_layers import FIRST, other_layer

LAYERS = 2000
OTHERS = 400
BLOCK = 20
THOROUGH = 20
"""One block in this many also runs by rows, with UBSan and optimized."""
SEARCHED = 20
"""One block in this many runs with every configuration that tuning may try."""
BANDS = (1, 2, 4)
PROFILES = ("litert", "tflm")
OF_OTHER_TYPES = (
    "tree_ensemble",
    "float",
    "fpu.",
    "hybrid",
    ".direct",
    ".int16",
    ".fused",
    ".separate",
)
NOT_DRAWN = {f"helium.{op}.floats" for op in ("sub", "mul", "max_pool2d")}
"""Schedules that tests/unit/schedules/test_helium_floats.py covers bit by bit."""
WITH_RELU = {"dsp.conv2d.shared", "dsp.depthwise.shared"}
"""Schedules that test_shared_kernels.py covers."""
WITH_STATE = {rule.name for rule in SCHEDULES if rule.op in ("lstm", "svdf")}
"""Schedules of operators with state, which the operators' cases cover on boards."""


def blocks(count: int, *, always: int = 1) -> list[object]:
    """Return the first layers of the blocks; blocks after `count` require --deep."""
    return [
        pytest.param(first, marks=[] if place < always else [pytest.mark.deep])
        for place, first in enumerate(range(0, count, BLOCK))
    ]


def check(batch: Batch, folder: Path, *flags: Sequence[str]) -> None:
    """Compare the kernels with the runtimes for several compiler flags."""
    expected = run_oracles(batch.cases, PROFILES)
    for some in flags:
        program = build(batch, folder, some)
        assert (
            find_failures(batch, program, list(make_runs(batch, expected, (0, 1, 2))))
            == []
        )


@pytest.mark.host_c
@pytest.mark.parametrize("first", blocks(LAYERS))
def test_every_int8_schedule_matches_the_reference_runtimes(
    first: int, deep: bool, tmp_path: Path
) -> None:
    """With --deep each argument is a separate heap block under AddressSanitizer."""
    cases = [layer(n) for n in range(first, first + BLOCK)]
    place = first // BLOCK
    is_thorough = place % THOROUGH == 0
    batch = make_batch(
        cases,
        TARGETS,
        PROFILES,
        bands=(BANDS[(place // THOROUGH + 1) % len(BANDS)],) if is_thorough else (),
        is_searched=place % SEARCHED == 1,
        is_quick=not (deep and is_thorough),
    )
    assert len(batch.kernels) > 3 * BLOCK
    flags = (FAST, UNDEFINED) if is_thorough else (SANITIZED,)
    check(batch, tmp_path, *(flags if deep else (QUICKLY_BUILT,)))


@pytest.mark.host_c
@pytest.mark.parametrize("first", blocks(OTHERS))
def test_schedules_of_other_types_match_the_reference_runtimes(
    first: int, deep: bool, tmp_path: Path
) -> None:
    """Cover int16, float32 and hybrid layers, transposed convolutions, rare shapes."""
    cases = [other_layer(FIRST + n) for n in range(first, first + BLOCK)]
    batch = make_batch(cases, TARGETS, PROFILES, is_quick=first > 0, fuses=True)
    check(batch, tmp_path, *((FAST, SANITIZED) if deep else (QUICKLY_BUILT,)))


@pytest.mark.host_c
def test_ties_of_fully_connected_layers_match_the_reference_runtimes(
    tmp_path: Path,
) -> None:
    made_of = [
        each
        for each in conformance_cases("fully_connected")
        if each.name.startswith(("halves", "huge"))
    ]
    cases = [
        replace(each, name=f"{each.name}_{place}") for place, each in enumerate(made_of)
    ]
    batch = make_batch(cases, TARGETS, PROFILES)
    offered = {
        each.schedule
        for each in batch.kernels
        if each.layer == 2 and "litert" in each.profiles
    }
    assert "huge" in cases[2].name
    assert offered == {"default"}
    assert {each.layer for each in batch.kernels if "dsp." in each.schedule} >= {0, 1}
    check(batch, tmp_path, QUICKLY_BUILT)


PLANTED = {
    "y[-1] ^= 1;": "writes outside of its arguments",
    "y[Y_BYTES] ^= 1;": "writes outside of its arguments",
    "((int8_t *)x)[0] ^= 1;": "writes to its input",
    "y[0] = x[X_BYTES];": "values differ",
    "y[0] = x[-1];": "values differ",
    "y[0] ^= 1;": "values differ",
}
"""Statement inserted into a kernel -> expected message."""


@pytest.mark.host_c
def test_harness_detects_faulty_kernels(tmp_path: Path) -> None:
    cases = [layer(9)]
    batch = make_batch(cases, ("c",), ("litert",))
    sound = batch.files["table.h"]
    x, y = batch.function(0).params
    todo = list(make_runs(batch, run_oracles(cases, ("litert",), (0,)), (0,)))
    for planted, said in PLANTED.items():
        text = planted.replace("X_BYTES", str(x.value.size_bytes))
        text = text.replace("Y_BYTES", str(y.value.size_bytes))
        names = "const int8_t *x = (void *)a[0]; int8_t *y = (void *)a[1]; (void)x; (void)y;"
        batch.files["table.h"] = sound.replace(
            "        break;", f"{{ {names} {text} }} break;", 1
        )
        assert batch.files["table.h"] != sound
        found = find_failures(batch, build(batch, tmp_path, QUICKLY_BUILT), todo)
        assert found, planted
        assert all(said in line for line in found), found


@pytest.mark.deep
def test_random_layers_cover_every_int8_schedule() -> None:
    met: Counter[str] = Counter()
    for first in range(0, 400, 50):
        module = import_cases([layer(n) for n in range(first, first + 50)], "litert")
        assert isinstance(module.entry, Function)
        for call in module.entry.body:
            described = make_op_call(call, module)
            met.update(
                r.name for r in SCHEDULES if r.op == call.op and r.configs(described)
            )
    names = {
        rule.name
        for rule in SCHEDULES
        if not any(w in rule.name for w in OF_OTHER_TYPES)
    }
    assert names - set(met) - WITH_RELU == WITH_STATE


@pytest.mark.deep
def test_other_layers_cover_every_schedule_of_their_types() -> None:
    module = import_cases([other_layer(FIRST + n) for n in range(200)], "litert")
    assert isinstance(module.entry, Function)
    met: Counter[str] = Counter()
    for call in module.entry.body:
        described = make_op_call(call, module)
        met.update(
            r.name for r in SCHEDULES if r.op == call.op and r.configs(described)
        )
    names = {
        rule.name for rule in SCHEDULES if any(w in rule.name for w in OF_OTHER_TYPES)
    }
    assert names - set(met) == NOT_DRAWN


def test_layer_depends_only_on_its_number() -> None:
    for draw, n in ((layer, 41), (other_layer, FIRST + 41)):
        first, again = draw(n), draw(n)
        assert (first.name, first.options) == (again.name, again.options)
        assert [t and t.shape for t in first.inputs] == [
            t and t.shape for t in again.inputs
        ]
        assert number(first) == n
