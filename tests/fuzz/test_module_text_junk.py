"""Junk in a module text ends in a project or in the text's error, never in ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest

from firmwright.base.errors import FirmwrightError, InternalError, ModelError
from firmwright.conformance.case_tables import case_table, conformance_cases
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.pipeline import Options, compile_model, load_module_bytes
from tests.fuzz.text_junk import Damage, damage_attributes, damage_tokens
from tests.ops.tflite_writer import write_cases

NET = """firmwright ir 2
module @net
const @k = i8[2,2,2,2] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
const @bias = i32[2] [10, 20]
const @zero = i8[1,2] [0, 0]
graph @main(%x: i8[1,4,4,2] quant(0.1, 3)) -> (%y, %n)
    state(%s: i8[1,2] quant(0.1, 3) = @zero -> %n) {
  %k = const @k: i8[2,2,2,2] quant(0.01, 0)
  %bias = const @bias: i32[2] quant(0.001, 0)
  %c: i8[1,2,2,2] quant(0.1, 3) = conv2d(%x, %k, %bias) {stride=[2, 2], dilation=[1, 1],
      padding=[0, 0, 0, 0], activation="relu"}
  %p: i8[1,1,1,2] quant(0.1, 3) = max_pool2d(%c) {size=[2, 2], stride=[1, 1],
      dilation=[1, 1], padding=[0, 0, 0, 0], activation="none"}
  %f: i8[1,2] quant(0.1, 3) = reshape(%p)
  %n: i8[1,2] quant(0.1, 3) = add(%f, %s) {activation="none"}
  %y: i8[1,2] quant(0.00390625, -128) = softmax(%n) {beta=1.0}
}
"""
POOLS = (PoolInfo("sram", 4096), PoolInfo("dtcm", 4096, cache_line=32, scope="global"))
CORE = Options(target="cortex-m -mcpu=cortex-m4", planner="greedy_by_size", pools=POOLS)
TWO_CORES = Options(
    board="mps2-an521",
    planner="greedy_by_size",
    devices=("cpu0", "cpu1"),
    device_assignments=(("c", "cpu1", "sram"),),
)
STAGES = ("partition", "plan-devices", "lower-select", "usmp")
TWO_CORE_STAGES = tuple(f"{stage} of two cores" for stage in STAGES)
SAMPLE = 16
"""Damaged texts of each stage that a test run compiles; --deep compiles all."""
KNOWN = {
    'activation="relu"': 'activation="junk"',
    'activation="none"': "activation=[]",
    "padding=[0, 0, 0, 0]": 'padding="same"',
    'mcpu="cortex-m4"': 'mcpu="junk"',
    "pool @dtcm {": 'pool @dtcm {scope="junk", ',
    "size_bytes=4096": "size_bytes=-1",
    "= @zero": "= @junk",
    "const @zero = ": "const @junk = ",
    "quant(0.1, 3)": f"quant(0.1, {2**63})",
    "graph @main(": "graph @junk(",
    "stage=": 'entry="junk", stage=',
    "link_params=true": 'link_params="junk"',
}
"""Parts of the text of the stage `partition`, and damage that ended in a traceback."""


@cache
def stages() -> dict[str, str]:
    """Return the texts of a small network after some passes, by pass."""
    seen = {"import": NET}
    for suffix, options in (("", CORE), (" of two cores", TWO_CORES)):

        def watch(stage: str, module: IRModule, suffix: str = suffix) -> None:
            if stage in STAGES:
                seen[f"{stage}{suffix}"] = print_module(module)

        compile_model(parse_module(NET), options, watch=watch)
    return seen


def end_of(text: str) -> FirmwrightError | None:
    """Read and compile a module with trust; return the error, or None without one."""
    try:
        module = load_module_bytes(text.encode(), "junk.fwir")
        trusted = replace(module, untrusted=None)
        board = "mps2-an521" if "visible_pools" in text or "cpu1" in text else "host"
        compile_model(
            trusted, Options(board=board, target="c", planner="greedy_by_size")
        )
    except FirmwrightError as error:
        return error
    return None


def check(damages: Iterator[Damage]) -> None:
    for damage in damages:
        try:
            error = end_of(damage.text)
        except Exception as error:
            raise AssertionError(damage.place) from error
        assert not isinstance(error, InternalError), f"{damage.place}: {error}"


def every(damages: list[Damage], count: int, deep: bool) -> Iterator[Damage]:
    return iter(damages if deep else damages[3 :: max(1, len(damages) // count)])


@pytest.mark.parametrize("part", KNOWN)
def test_damage_that_ended_in_a_traceback_is_an_error_of_the_text(part: str) -> None:
    text = stages()["partition"]
    assert part in text
    error = end_of(text.replace(part, KNOWN[part]))
    assert isinstance(error, ModelError)
    assert error.where


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "stage", ["import", *STAGES, *(f"{stage} of two cores" for stage in STAGES)]
)
def test_junk_in_a_text_is_an_error_of_the_text_or_compiles(
    stage: str, deep: bool
) -> None:
    text = stages()[stage]
    assert end_of(text) is None
    check(every([*damage_attributes(text), *damage_tokens(text)], SAMPLE, deep))


def operator_texts() -> Iterator[tuple[str, str]]:
    """Yield a text for each operator, and the cases with other attributes."""
    for operator in case_table():
        seen: set[frozenset[str]] = set()
        for case in islice(
            filter(lambda case: case.builtin, conformance_cases(operator)), 40
        ):
            names = frozenset(case.options)
            if names not in seen:
                seen.add(names)
                yield (
                    operator,
                    print_module(load_module_bytes(write_cases([case]), "x.tflite")),
                )


def test_junk_in_the_attributes_of_operators_is_an_error_or_compiles(
    deep: bool,
) -> None:
    texts = (
        list(operator_texts()) if deep else list(islice(operator_texts(), 0, None, 11))
    )
    for _, text in texts:
        check(every(list(damage_attributes(text)), 2, deep))
