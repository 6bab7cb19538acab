"""Random layers in every schedule of every family, in portable C on this computer.

What LiteRT (`BUILTIN_REF`) and TFLM say is what each kernel must compute, bit for bit: whole, and
as bands of rows. Around its arguments nothing is written, and nothing read there shows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from families import TARGETS
from kernels import batch, imported
from on_host import FAST, QUICKLY_BUILT, SANITIZED, UNDEFINED, build, runs, wrong
from oracles import ask, number
from random_layers import layer

from firmwright.ir.graph.evaluate import describe
from firmwright.ir.graph.nodes import Function
from firmwright.ops.fully_connected import OPDEF as FULLY_CONNECTED
from firmwright.schedules.registry import RULES

LAYERS = 2000
BLOCK = 20
THOROUGH = 5
"""Of so many blocks one is tried as bands of one, two and four rows and for undefined behaviour."""
SEARCHED = 20
"""Of so many blocks one is tried in every configuration that a search may try."""
PROFILES = ("litert", "tflm")
OF_OTHER_TYPES = ("float", "fpu.", "hybrid", ".dots")


def blocks(*, always: int) -> list[object]:
    """First layers of the blocks: that many always, the rest with --deep."""
    return [
        pytest.param(first, marks=[] if place < always else [pytest.mark.deep])
        for place, first in enumerate(range(0, LAYERS, BLOCK))
    ]


@pytest.mark.host_c
@pytest.mark.parametrize("first", blocks(always=1))
def test_every_schedule_computes_what_the_reference_runtimes_do(
    first: int, deep: bool, tmp_path: Path
) -> None:
    """With --deep also each argument as a block of the heap, under AddressSanitizer."""
    cases = [layer(n) for n in range(first, first + BLOCK)]
    is_thorough = deep and first % (THOROUGH * BLOCK) == 0
    is_searched = deep and first % (SEARCHED * BLOCK) == BLOCK
    bands = (1, 2, 4) if is_thorough else (2,) if first == 0 else ()
    made = batch(cases, TARGETS, PROFILES, bands=bands, is_searched=is_searched)
    assert len(made.kernels) > 3 * BLOCK
    expected = ask(cases, PROFILES)
    program = build(made, tmp_path, FAST if deep else QUICKLY_BUILT)
    assert wrong(made, program, list(runs(made, expected, (0, 1, 2)))) == []
    if deep:
        program = build(made, tmp_path, UNDEFINED if is_thorough else SANITIZED)
        assert wrong(made, program, list(runs(made, expected, (0,)))) == []


@pytest.mark.host_c
def test_ties_of_fully_connected_layers_fall_as_in_the_reference_runtimes(tmp_path: Path) -> None:
    made_of = [each for each in FULLY_CONNECTED.cases() if each.name.startswith(("halves", "huge"))]
    cases = [replace(each, name=f"{each.name}_{place}") for place, each in enumerate(made_of)]
    made = batch(cases, TARGETS, PROFILES)
    offered = {
        each.schedule for each in made.kernels if each.layer == 2 and "litert" in each.profiles
    }
    assert "huge" in cases[2].name
    assert offered == {"default"}
    assert {each.layer for each in made.kernels if "dsp." in each.schedule} >= {0, 1}
    program = build(made, tmp_path, QUICKLY_BUILT)
    assert wrong(made, program, list(runs(made, ask(cases, PROFILES), (0, 1, 2)))) == []


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
            described = describe(call, module)
            met.update(r.name for r in RULES if r.op == call.op and r.configs(described))
    names = {rule.name for rule in RULES if not any(w in rule.name for w in OF_OTHER_TYPES)}
    assert names - set(met) == set()


def test_a_layer_depends_on_its_number_alone() -> None:
    first, again = layer(41), layer(41)
    assert (first.name, first.options) == (again.name, again.options)
    assert [t and t.shape for t in first.inputs] == [t and t.shape for t in again.inputs]
    assert number(first) == 41
