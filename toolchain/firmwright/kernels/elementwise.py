"""Micro-kernels that compute each element alone: a loop around a program.

What they compute is stated once, as an expression of one element. The portable C calls
it in a loop, and so does numpy. With vectors, the loop loads them, executes a program
(`vector_program.py`) and stores its result:

    RISC-V                       Helium
    for all elements:            for all whole vectors:
        vl = vsetvl(rest)            load, compute, store
        load, compute, store     for the elements that are left:
                                     load, compute, store with a predicate
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import BOOL, Array, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.ir.tir.traversal import walk
from firmwright.kernels.evaluation import evaluate_expression
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.isa.rvv import register_group, riscv_row
from firmwright.kernels.program import Distance, Index, PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram
from firmwright.kernels.vector_text import vector_text

Element: TypeAlias = Callable[..., ArithExpr]
"""An element of the result, from the operands by name, of pointers one element."""
Compute: TypeAlias = Callable[
    [VectorBuilder, Sequence[VirtualRegister]], VirtualRegister
]
"""Appends the steps of one vector, from those of the inputs; returns the result."""


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """The vectors of a loop: of each input one element type, and lanes of one type.

    `compute` takes vectors of lanes; of RISC-V, where loads do not widen, of elements.
    """

    inputs: tuple[PointerOperand, ...]
    output: PointerOperand
    lane: DType
    compute: Compute


# ---- the specification ---------------------------------------------------------------


def value_intrinsic(
    name: str, operands: Sequence[Operand], element: Element, doc: str
) -> Intrinsic:
    """Return `element` as a function of those operands that it uses, all numbers."""
    variables = {op.name: ArithExpr(tir.Var(op.name, op.dtype)) for op in operands}
    value = element(**variables).expr
    used = {node.name for node in walk(value) if isinstance(node, tir.Var)}
    taken = [op for op in operands if op.name in used]
    return Intrinsic(
        name,
        tuple(Operand(op.name, "in", op.dtype) for op in taken),
        partial(_element_meaning, value, [op.name for op in taken]),
        portable="",
        doc=doc,
        result=value.dtype,
        value=value,
    )


def element_intrinsics(
    name: str,
    operands: Sequence[Operand],
    element: Element,
    doc: str,
    requires: str,
    text: str,
    count: Callable[[Sequence[int]], int],
    definitions: tuple[str, ...] = (),
) -> tuple[Intrinsic, ...]:
    """Return the micro-kernel with the C `text`, after the function of an element.

    An element that is copied needs no function.

    The operand `count` is the number of elements, and the only pointer that is written
    has the results.
    """
    (output,) = filter(_is_output, operands)
    given = [op for op in operands if op.name != "count" and op != output]
    doc_of_element = f"One element of {name}."
    function = value_intrinsic(f"{name}_element", given, element, doc_of_element)
    taken = {op.name for op in function.operands}
    arguments = ", ".join(
        op.name + "[i]" * (op.kind == "ptr") for op in given if op.name in taken
    )
    is_copy = isinstance(function.value, tir.Var)
    call = arguments if is_copy else f"@{function.name}({arguments})"
    lines = f"    {output.name}[i] = {call};"
    portable = f"for (int32_t i = 0; i < count; ++i) {{\n{lines}\n}}"
    loop = Intrinsic(
        name,
        tuple(operands),
        partial(_loop_meaning, function, operands),
        without_unused(operands, portable),
        doc,
        requires=requires,
        text={"gnu": without_unused(operands, text)},
        definitions=definitions,
        count=count,
        calls=() if is_copy else (function.name,),
    )
    return (loop,) if is_copy else (function, loop)


def without_unused(operands: Sequence[Operand], text: str) -> str:
    """Return C without warnings of operands that it does not use."""
    unused = [op for op in operands if not re.search(rf"\b{op.name}\b", text)]
    return "\n".join([*(f"(void){op.name};" for op in unused), text])


def _is_output(operand: Operand) -> bool:
    return operand.kind == "ptr" and operand.access != "r"


def _element_meaning(value: tir.Expr, names: Sequence[str], *operands: Array) -> Array:
    return evaluate_expression(value, dict(zip(names, operands, strict=True)))


def _loop_meaning(
    function: Intrinsic, operands: Sequence[Operand], *given: Array
) -> Array:
    values = {op.name: x for op, x in zip(operands, given, strict=True)}
    count = int(values["count"])
    for op in operands:
        if op.kind == "ptr":
            values[op.name] = np.asarray(values[op.name])[:count]
    shape = np.broadcast_shapes(*(np.shape(x) for x in values.values()))
    elements = function.meaning(*(values[op.name] for op in function.operands))
    return np.broadcast_to(elements, shape)


# ---- vectors -------------------------------------------------------------------------


def helium_program(loop: ElementLoop, *, is_tail: bool = False) -> VectorProgram:
    """Return the steps of one vector; `is_tail`: of the lanes in `inside`."""
    k = VectorBuilder(loop.output.name)
    predicate = RegisterPlace(RegisterClass.PREDICATE, BOOL, _helium_lanes(loop))
    given = [VirtualRegister(predicate, "inside")] * is_tail
    loads = []
    for pointer in loop.inputs:
        row = MVE_MEMORY.rows[_helium_access("vldr", "z", pointer, loop.lane, is_tail)]
        loads.append(k.named(f"{pointer.name}_lanes", row, pointer[0], *given))
    row = MVE_MEMORY.rows[_helium_access("vstr", "p", loop.output, loop.lane, is_tail)]
    k.store(row, loop.output[0], loop.compute(k, loads), *given)
    return k.build_vectors()


def helium_text(loop: ElementLoop) -> str:
    count = _helium_lanes(loop)
    names = [pointer.name for pointer in (*loop.inputs, loop.output)]
    advance = "\n".join(f"    {name} += {count};" for name in names)
    kept = ", ".join(f'"+r"({name})' for name in names)
    return f"""\
for (int32_t left = count; left >= {count}; left -= {count}) {{
{indent(vector_text(helium_program(loop)), "    ")}
{advance}
    /* Keep the pointers: post-increments are free, a common index is not. */
    __asm__("" : {kept});
}}
if (count % {count} != 0) {{
    const mve_pred16_t inside = vctp{loop.lane.bits}q((uint32_t)(count % {count}));
{indent(vector_text(helium_program(loop, is_tail=True)), "    ")}
}}"""


def _helium_lanes(loop: ElementLoop) -> int:
    return 128 // loop.lane.bits


def _helium_access(
    stem: str, mode: str, pointer: PointerOperand, lane: DType, is_tail: bool
) -> str:
    """Return the name of a load or store, predicated if `is_tail`."""
    size = {8: "b", 16: "h", 32: "w"}[pointer.dtype.bits]
    kind = "f" if lane.is_float else "s" if lane.signed else "u"
    return f"{stem}{size}q_{f'{mode}_' * is_tail}{kind}{lane.bits}"


_AT = Index(0, 0, Distance("at", 1))


def riscv_program(loop: ElementLoop, lanes: int) -> VectorProgram:
    """Return the steps of one vector of up to `lanes` elements."""
    k = VectorBuilder(loop.output.name)
    loads = []
    for pointer in loop.inputs:
        row = riscv_row(lanes, pointer.dtype, f"vle{pointer.dtype.bits}_v")
        loads.append(k(row, pointer[_AT]))
    result, dtype = loop.compute(k, loads), loop.output.dtype
    k.store(riscv_row(lanes, dtype, f"vse{dtype.bits}_v"), loop.output[_AT], result)
    return k.build_vectors()


def riscv_text(loop: ElementLoop, lanes: int) -> str:
    group = register_group(loop.lane, lanes)
    width = group.replace(loop.lane.short, f"e{loop.lane.bits}")
    return f"""\
for (int32_t at = 0; at < count;) {{
    const size_t vl = __riscv_vsetvl_{width}((size_t)(count - at));
{indent(vector_text(riscv_program(loop, lanes)), "    ")}
    at += (int32_t)vl;
}}"""
