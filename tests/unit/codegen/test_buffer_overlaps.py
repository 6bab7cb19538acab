"""The comment of a kernel says where its output overlaps its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.codegen.buffer_overlaps import OverlapComments
from firmwright.codegen.model_emitter import emit_model
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import Builder
from tests.unit.codegen.planned_mains import planned_main, whole

EXPLANATION = "/* Overlap: the memory plan places an output over an input"


def negation() -> tir.PrimFunc:
    """y[i] = -x[i], with x and y of 8 bytes."""
    b = Builder("negate")
    x = b.buffer_param("x", INT8, (8,), "in")
    y = b.buffer_param("y", INT8, (8,), "out")
    with b.for_("i", 8) as i:
        b.store(y, [i], (0 - b.load_i32(x, [i])).cast(INT8))
    return b.build()


def main_of(*places: tuple[int, int]) -> tir.PrimFunc:
    """Return a main that calls the kernel once per place: pool offsets of x and y."""
    placed: list[tuple[tir.Buffer, int]] = []
    calls = []
    for op, (x, y) in enumerate(places):
        source, target = (
            tir.Buffer(f"x{op}", INT8, (8,)),
            tir.Buffer(f"y{op}", INT8, (8,)),
        )
        placed += [(source, x), (target, y)]
        calls.append(
            tir.PrimFuncCall("negate", (whole(source, "r"), whole(target, "w")), op=op)
        )
    return planned_main(calls, placed, 64)


def lines(*places: tuple[int, int]) -> Sequence[str]:
    kernel = negation()
    return list(OverlapComments(main_of(*places), {"negate": kernel}).lines(kernel))


@pytest.mark.parametrize(
    ("x", "y", "where"),
    [
        (8, 4, "4 bytes before it"),
        (8, 1, "7 bytes before it"),
        (8, 9, "1 byte after it"),
        (8, 8, "at the same address"),
    ],
)
def test_the_distance_is_that_of_the_plan(x: int, y: int, where: str) -> None:
    assert lines((x, y)) == [
        f"y overlaps x and starts {where}: do not reorder, do not add restrict"
    ]


def test_adjacent_buffers_do_not_overlap() -> None:
    assert lines((8, 0), (8, 16)) == []


def test_calls_of_one_kernel_with_different_distances_are_told_apart() -> None:
    (line,) = lines((8, 4), (32, 40), (16, 12), (40, 42))
    assert (
        "starts 4 bytes before it (operators 0, 2) or 2 bytes after it (operator 3)"
        in line
    )


def test_a_pointer_that_a_loop_moves_has_no_fixed_distance() -> None:
    kernel, row = negation(), tir.Var("row", INT32)
    x, y = tir.Buffer("x", INT8, (16,)), tir.Buffer("y", INT8, (8,))
    moving = tir.AccessPtr(x, row, 8, "r")
    call = tir.PrimFuncCall("negate", (moving, whole(y, "w")), op=0)
    loop = tir.For(row, tir.IntImm(0, INT32), tir.IntImm(8, INT32), call)
    (line,) = OverlapComments(
        planned_main([loop], [(x, 0), (y, 8)], 64), {"negate": kernel}
    ).lines(kernel)
    assert "starts at a varying distance from it" in line


def test_the_explanation_precedes_the_kernels_that_overlap(module_of) -> None:
    b = Builder("negate")
    x = b.buffer_param("x", INT8, (8,), "in")
    y = b.buffer_param("y", INT8, (8,), "out")
    b.store(y, [0], b.load(x, [0]))
    apart: IRModule = module_of(b)
    text = str(emit_model(apart, {}).files["model/m.c"])
    assert "overlap" not in text

    main = apart.functions["run"]
    assert isinstance(main, tir.PrimFunc)
    io = [io.buffer for io in (*apart.io.inputs, *apart.io.outputs)]
    buffers = [tir.Buffer(name, INT8, (8,)) for name in io]
    call = tir.PrimFuncCall(
        "negate", (whole(buffers[0], "r"), whole(buffers[1], "w")), op=0
    )
    over = planned_main([call], [(buffers[0], 16), (buffers[1], 12)], 32)
    module = replace(apart, functions=apart.functions | {"run": over})
    text = str(emit_model(module, {}).files["model/m.c"])
    assert text.count(EXPLANATION) == 1
    assert text.index(EXPLANATION) < text.index(
        "y overlaps x and starts 4 bytes before it"
    )
