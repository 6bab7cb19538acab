"""Random layers in every schedule of every family, in portable C on this computer.

What LiteRT (`BUILTIN_REF`) and TFLM say is what each kernel must compute, bit for bit: whole, and
as bands of rows. Around its arguments nothing is written, and nothing read there shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from families import TARGETS
from kernels import Batch, batch, imported
from on_host import FAST, QUICKLY_BUILT, SANITIZED, UNDEFINED, build, runs, wrong
from oracles import ask, number
from other_layers import FIRST, other_layer
from random_layers import layer

from firmwright.conformance.registry import cases_of
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Function
from firmwright.schedules.registry import RULES

LAYERS = 2000
OTHERS = 400
BLOCK = 20
THOROUGH = 20
"""Of so many blocks one is tried by rows, for undefined behaviour, and optimised."""
SEARCHED = 20
"""Of so many blocks one is tried in every configuration that a search may try."""
BANDS = (1, 2, 4)
PROFILES = ("litert", "tflm")
OF_OTHER_TYPES = (
    "tree_ensemble", "float", "fpu.", "hybrid", ".dots", ".half", ".halves", ".fused", ".separate",
)  # fmt: skip
NOT_DRAWN = {f"helium.{op}.floats" for op in ("sub", "mul", "max_pool2d")}
"""Rules whose every bit tests/unit/schedules/test_helium_floats.py knows."""


def blocks(count: int, *, always: int = 1) -> list[object]:
    """First layers of the blocks: that many always, the rest with --deep."""
    return [
        pytest.param(first, marks=[] if place < always else [pytest.mark.deep])
        for place, first in enumerate(range(0, count, BLOCK))
    ]


def check(made: Batch, folder: Path, *flags: Sequence[str]) -> None:
    """What the runtimes say is what the kernels compute, whatever the compiler's flags."""
    expected = ask(made.cases, PROFILES)
    for some in flags:
        program = build(made, folder, some)
        assert wrong(made, program, list(runs(made, expected, (0, 1, 2)))) == []


@pytest.mark.host_c
@pytest.mark.parametrize("first", blocks(LAYERS))
def test_every_schedule_computes_what_the_reference_runtimes_do(
    first: int, deep: bool, tmp_path: Path
) -> None:
    """With --deep each argument is a block of the heap, under AddressSanitizer."""
    cases = [layer(n) for n in range(first, first + BLOCK)]
    place = first // BLOCK
    is_thorough = place % THOROUGH == 0
    made = batch(
        cases,
        TARGETS,
        PROFILES,
        bands=(BANDS[(place // THOROUGH + 1) % len(BANDS)],) if is_thorough else (),
        is_searched=place % SEARCHED == 1,
        is_quick=not (deep and is_thorough),
    )
    assert len(made.kernels) > 3 * BLOCK
    flags = (FAST, UNDEFINED) if is_thorough else (SANITIZED,)
    check(made, tmp_path, *(flags if deep else (QUICKLY_BUILT,)))


@pytest.mark.host_c
@pytest.mark.parametrize("first", blocks(OTHERS))
def test_schedules_of_other_types_compute_what_the_reference_runtimes_do(
    first: int, deep: bool, tmp_path: Path
) -> None:
    """int16, float32 and hybrid layers, transposed convolutions, rarer shapes; floats within the
    bounds of their definition.
    """
    cases = [other_layer(FIRST + n) for n in range(first, first + BLOCK)]
    made = batch(cases, TARGETS, PROFILES, is_quick=first > 0, fuses=True)
    check(made, tmp_path, *((FAST, SANITIZED) if deep else (QUICKLY_BUILT,)))


@pytest.mark.host_c
def test_ties_of_fully_connected_layers_fall_as_in_the_reference_runtimes(tmp_path: Path) -> None:
    made_of = [
        each for each in cases_of("fully_connected") if each.name.startswith(("halves", "huge"))
    ]
    cases = [replace(each, name=f"{each.name}_{place}") for place, each in enumerate(made_of)]
    made = batch(cases, TARGETS, PROFILES)
    offered = {
        each.schedule for each in made.kernels if each.layer == 2 and "litert" in each.profiles
    }
    assert "huge" in cases[2].name
    assert offered == {"default"}
    assert {each.layer for each in made.kernels if "dsp." in each.schedule} >= {0, 1}
    check(made, tmp_path, QUICKLY_BUILT)


PLANTED = {
    "y[-1] ^= 1;": "writes outside of its arguments",
    "y[Y_BYTES] ^= 1;": "writes outside of its arguments",
    "((int8_t *)x)[0] ^= 1;": "writes to its input",
    "y[0] = x[X_BYTES];": "values differ",
    "y[0] = x[-1];": "values differ",
    "y[0] ^= 1;": "values differ",
}
"""What a kernel may do wrong, and what must be said of it."""


@pytest.mark.host_c
def test_a_kernel_that_breaks_the_rules_is_found(tmp_path: Path) -> None:
    cases = [layer(9)]
    made = batch(cases, ("c",), ("litert",))
    sound = made.files["table.h"]
    x, y = made.function(0).params
    todo = list(runs(made, ask(cases, ("litert",), (0,)), (0,)))
    for planted, said in PLANTED.items():
        text = planted.replace("X_BYTES", str(x.value.size_bytes))
        text = text.replace("Y_BYTES", str(y.value.size_bytes))
        names = "const int8_t *x = (void *)a[0]; int8_t *y = (void *)a[1]; (void)x; (void)y;"
        made.files["table.h"] = sound.replace("        break;", f"{{ {names} {text} }} break;", 1)
        assert made.files["table.h"] != sound
        found = wrong(made, build(made, tmp_path, QUICKLY_BUILT), todo)
        assert found, planted
        assert all(said in line for line in found), found


@pytest.mark.deep
def test_random_layers_meet_every_rule_for_int8() -> None:
    met: Counter[str] = Counter()
    for first in range(0, 400, 50):
        module = imported([layer(n) for n in range(first, first + 50)], "litert")
        assert isinstance(module.entry, Function)
        for call in module.entry.body:
            described = make_op_call(call, module)
            met.update(r.name for r in RULES if r.op == call.op and r.configs(described))
    names = {rule.name for rule in RULES if not any(w in rule.name for w in OF_OTHER_TYPES)}
    assert names - set(met) == set()


@pytest.mark.deep
def test_layers_of_other_types_meet_every_rule_for_those() -> None:
    module = imported([other_layer(FIRST + n) for n in range(200)], "litert")
    assert isinstance(module.entry, Function)
    met: Counter[str] = Counter()
    for call in module.entry.body:
        described = make_op_call(call, module)
        met.update(r.name for r in RULES if r.op == call.op and r.configs(described))
    names = {rule.name for rule in RULES if any(w in rule.name for w in OF_OTHER_TYPES)}
    assert names - set(met) == NOT_DRAWN


def test_a_layer_depends_on_its_number_alone() -> None:
    for draw, n in ((layer, 41), (other_layer, FIRST + 41)):
        first, again = draw(n), draw(n)
        assert (first.name, first.options) == (again.name, again.options)
        assert [t and t.shape for t in first.inputs] == [t and t.shape for t in again.inputs]
        assert number(first) == n
