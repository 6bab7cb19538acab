"""Helpers that run built functions in lanes and serially, and test intrinsics."""

from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir import tir
from firmwright.ir.tir.affine import Affine
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.interpreter import Interpreter, interpret
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.ir.tir.loop_vectorizability import LoopScope, is_parallel
from firmwright.ir.tir.traversal import walk

Array = np.ndarray[Any, Any]


def smlad_meaning(a: Array, b: Array, acc: Array) -> Array:
    low = a.astype(np.int16).astype(np.int64) * b.astype(np.int16)
    high = (a >> 16).astype(np.int64) * (b >> 16)
    return (acc + low + high).astype(np.int32)


SMLAD = Intrinsic(
    "smlad",
    (Operand("a", "in", INT32), Operand("b", "in", INT32), Operand("acc", "in", INT32)),
    smlad_meaning,
    "",
    "two 16-bit products added to an accumulator",
    result=INT32,
)
DOT4 = Intrinsic(
    "dot4",
    (
        Operand("acc", "inout", INT32),
        Operand("a", "ptr", INT8, "r", 4),
        Operand("b", "ptr", INT8, "r", 4),
    ),
    lambda acc, a, b: acc + (a.astype(np.int32) * b).sum(axis=0, dtype=np.int32),
    "",
    "four 8-bit products added to an accumulator",
)
FILL4 = Intrinsic(
    "fill4",
    (Operand("value", "in", INT32), Operand("out", "ptr", INT8, "w", 4)),
    lambda value, old: np.broadcast_to(value.astype(np.int8), old.shape).copy(),
    "",
    "four copies of a byte",
)
TABLE = {item.name: item for item in (SMLAD, DOT4, FILL4)}


def run(b: Builder, both: bool = True, **args: Any) -> None:
    """Interpret the function that `b` built in lanes; check that serial runs agree."""
    func = b.build()
    copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in args.items()}
    interpret(func, args, TABLE, constants=b.constants)
    if both:
        Interpreter({func.name: func}, TABLE, b.constants, lanes_max=1).run(
            func.name, copies
        )
        for name, value in args.items():
            np.testing.assert_array_equal(value, copies[name])


def outermost(func: tir.PrimFunc) -> tir.For:
    return next(node for node in walk(func.body) if isinstance(node, tir.For))


def runs_in_lanes(func: tir.PrimFunc, loop: tir.For | None = None) -> bool:
    places = {
        param.name: (param.name, Affine({}, 0))
        for param in func.params
        if isinstance(param.value, tir.Buffer)
    }
    return is_parallel(loop or outermost(func), LoopScope(places), TABLE)


def doubling() -> tir.PrimFunc:
    b = Builder("double")
    x = b.buffer_param("x", INT8, (8,), "in")
    y = b.buffer_param("y", INT8, (8,), "out")
    with b.for_("i", 8) as i:
        b.store(y, [i], b.load(x, [i]) * 2)
    return b.build()
