"""Tests of copy elision for splits and concatenations."""

from __future__ import annotations

import pytest

from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.verification import verify
from firmwright.ir import tir
from firmwright.ir.graph.attributes.movement import is_subview
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.traversal import prim_calls
from firmwright.ops.registry import op_table
from firmwright.passes.graph.copy_elision import mark_copies_as_views
from firmwright.pipeline import Options, compile_model

X = "%x: i8[1, 4, 4] quant(0.5, 0)"
HALF = "i8[1, 2, 4] quant(0.5, 0)"
WHOLE = "i8[1, 4, 4] quant(0.5, 0)"
SPLIT = f"%a: {HALF}, %b: {HALF} = split(%x) {{axis=1, sizes=[2, 2]}}"
MADE = f"{SPLIT} %c: {HALF} = relu(%a) %d: {HALF} = relu6(%b)"
JOINED = f"{MADE} %y: {WHOLE} = concatenation(%d, %c) {{axis=1}} %z: {WHOLE} = relu(%y)"
SLICED = (
    f"%h: {WHOLE} = relu(%x) %s: {HALF} = strided_slice(%h) "
    f"{{begin=[0, 1, 0], strides=[1, 1, 1], counts=[1, 2, 4], shrunk=[]}} %z: {HALF} = relu6(%s)"
)
NESTED = (
    f"{MADE} %y: {WHOLE} = concatenation(%d, %c) {{axis=1}} %e: {HALF} = relu(%c) "
    "%z: i8[1, 6, 4] quant(0.5, 0) = concatenation(%e, %y) {axis=1} "
    "%w: i8[1, 6, 4] quant(0.5, 0) = relu(%z)"
)


def graph(body: str, results: str = "%z") -> IRModule:
    return parse_module(
        f"firmwright ir 2\nmodule @net\ngraph @main({X}) -> ({results}) {{ {body} }}"
    )


def marked(body: str, results: str = "%z") -> dict[str, object]:
    """Return the offsets of each call's parts, by the name of its first output."""
    entry = mark_copies_as_views(graph(body, results), op_table()).entry
    assert isinstance(entry, Function)
    return {
        call.outputs[0].name: (call.attrs.subviews_of, call.attrs.offsets)
        for call in entry.body
        if is_subview(call.attrs)
    }


def test_splits_and_concatenations_along_the_outermost_axis_are_elided() -> None:
    assert marked(JOINED) == {"a": ("input", (0, 8)), "y": ("output", (0, 8))}
    assert marked(SLICED) == {"s": ("input", (4,))}
    assert marked(NESTED)["z"] == ("output", (0, 8))


@pytest.mark.parametrize(
    ("body", "results"),
    [
        (JOINED, "%z, %d"),  # the caller looks at a part
        (
            f"{MADE} %y: {WHOLE} = concatenation(%c, %a) {{axis=1}} %z: {WHOLE} = relu(%y)",
            "%z",
        ),
        (
            f"{MADE} %y: {WHOLE} = concatenation(%c, %c) {{axis=1}} %z: {WHOLE} = relu(%y)",
            "%z",
        ),
    ],
    ids=["a result", "a part of something else", "twice the same"],
)
def test_values_that_need_their_own_memory_are_copied(body: str, results: str) -> None:
    assert "y" not in marked(body, results)


def test_inner_axes_and_unaligned_parts_are_copied() -> None:
    inner = SPLIT.replace("axis=1", "axis=2").replace("[1, 2, 4]", "[1, 4, 2]")
    assert not marked(f"{inner} %z: i8[1, 4, 2] quant(0.5, 0) = relu(%a)")
    odd = SLICED.replace("[1, 4, 4]", "[1, 8, 2]").replace("[1, 2, 4]", "[1, 2, 2]")
    assert not marked(odd.replace("counts=[1, 2, 4]", "counts=[1, 2, 2]"))


def test_a_module_without_elidable_copies_is_unchanged() -> None:
    module = graph(f"%z: {WHOLE} = relu(%x)")
    assert mark_copies_as_views(module, op_table()) is module


@pytest.mark.host_c
@pytest.mark.parametrize(
    "body", [JOINED, SLICED, NESTED], ids=["joined", "sliced", "nested"]
)
def test_elided_copies_do_not_change_results(body: str) -> None:
    module = graph(body, "%w" if body is NESTED else "%z")
    done = compile_model(module, Options())
    main = done.module.entry
    assert isinstance(main, tir.PrimFunc)
    operators = {
        done.module.functions[c.callee].attrs["op"] for c in prim_calls(main.body)
    }
    assert operators <= {"relu", "relu6"}
    assert verify(done, samples=3, open_with=open_checked_session).exact
    again = compile_model(parse_module(print_module(done.module)), Options())
    # A module that has kernels does not record their choice in metadata.json.
    sources = [{**tree.files, "metadata.json": ""} for tree in (again.tree, done.tree)]
    assert sources[0] == sources[1]
