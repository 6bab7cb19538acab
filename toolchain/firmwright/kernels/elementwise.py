"""Micro-kernels that compute each element alone: a loop around a program.

Their result is stated once, as an expression of one element. The portable C calls
it in a loop, and so does numpy. With vectors, the loop loads them, executes a program
(`vector_program.py`) and stores its result:

    RISC-V                       Helium
    for all elements:            for all whole vectors:
        vl = vsetvl(rest)            load, compute, store
        load, compute, store     for the elements that are left:
                                     load, compute, store with a predicate

In place of the elements of an input, a micro-kernel may take those of a window and make
one of them: the largest, or the sum.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
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
from firmwright.kernels.program import (
    Address,
    Distance,
    Index,
    PointerOperand,
    VirtualRegister,
)
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram
from firmwright.kernels.vector_text import vector_text

Element: TypeAlias = Callable[..., ArithExpr]
"""An element of the result, from the operands by name, of pointers one element."""
Compute: TypeAlias = Callable[
    [VectorBuilder, Sequence[VirtualRegister]], VirtualRegister
]
"""Appends the steps of one vector, from those of the inputs; returns the result."""


@dataclass(frozen=True, slots=True)
class WindowInput:
    """An input of which each element is made of those of a window.

    `start` returns a variable, to which `take` adds the elements of one tap.
    """

    pointer: PointerOperand
    start: Callable[[VectorBuilder], VirtualRegister]
    take: Callable[[VectorBuilder, VirtualRegister, VirtualRegister], object]


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """The vectors of a loop: of each input one element type, and lanes of one type.

    `compute` takes vectors of lanes; of RISC-V, where loads do not widen, of elements.
    """

    inputs: tuple[PointerOperand | WindowInput, ...]
    output: PointerOperand
    lane: DType
    compute: Compute

    @property
    def pointers(self) -> tuple[PointerOperand, ...]:
        """The pointers of inputs and output; one may be both."""
        pointers: list[PointerOperand] = []
        for given in self.inputs:
            if isinstance(given, WindowInput):
                pointers.append(given.pointer)
            else:
                pointers.append(given)
        return tuple(dict.fromkeys([*pointers, self.output]))

    def load(
        self,
        k: VectorBuilder,
        load: Callable[[Address, str], VirtualRegister],
        at: Index,
    ) -> list[VirtualRegister]:
        """Return the vectors of all inputs; `load` takes the name of a variable."""
        vectors = []
        for given in self.inputs:
            if isinstance(given, WindowInput):
                value = given.start(k)
                with k.window(given.pointer[at]) as tap:
                    given.take(k, value, load(tap, ""))
                vectors.append(value)
            else:
                vectors.append(load(given[at], f"{given.name}_lanes"))
        return vectors


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


WINDOW_NUMBERS = ("rows", "columns", "row_step", "step")
"""The operands that describe a window, with steps in elements."""


def element_intrinsics(
    name: str,
    operands: Sequence[Operand],
    element: Element,
    doc: str,
    requires: str,
    text: str,
    count: Callable[[Sequence[int]], int],
    definitions: tuple[str, ...] = (),
    take: Element | None = None,
) -> tuple[Intrinsic, ...]:
    """Return the micro-kernel with the C `text`, after the functions of an element.

    An element that is copied needs no function.

    The operand `count` is the number of elements, and the only pointer that is written
    has the results. With `take`, `x` has windows: the operand `start` is the first
    `value`, `take` returns the next one from it and an element of x, and `element`
    depends on the last one.
    """
    (output,) = filter(_is_output, operands)
    given = [op for op in operands if op.name != "count"]
    if output.access == "w":
        given.remove(output)
    functions: list[Intrinsic] = []
    if take is not None:
        (start,) = (op for op in operands if op.name == "start")
        value = Operand("value", "in", start.dtype)
        (x,) = (op for op in operands if op.name == "x")
        doc_of_tap = f"One tap of {name}."
        functions.append(value_intrinsic(f"{name}_tap", (value, x), take, doc_of_tap))
        given = [value if op == x else op for op in given]
    doc_of_element = f"One element of {name}."
    function = value_intrinsic(f"{name}_element", given, element, doc_of_element)
    taken = {op.name for op in function.operands}
    arguments = ", ".join(
        op.name + "[i]" * (op.kind == "ptr") for op in given if op.name in taken
    )
    result = arguments
    if not isinstance(function.value, tir.Var):
        functions.append(function)
        result = f"@{function.name}({arguments})"
    lines = _tap_lines(name, start.dtype) if take is not None else []
    lines.append(f"{output.name}[i] = {result};")
    body = indent("\n".join(lines), "    ")
    loop = Intrinsic(
        name,
        tuple(operands),
        partial(_loop_meaning, functions, function, operands),
        without_unused(operands, f"for (int32_t i = 0; i < count; ++i) {{\n{body}\n}}"),
        doc,
        requires=requires,
        text={"gnu": without_unused(operands, text)},
        definitions=definitions,
        count=count,
        calls=tuple(each.name for each in functions),
    )
    return (*functions, loop)


def _tap_lines(name: str, dtype: DType) -> list[str]:
    return [
        f"{dtype.c_type} value = start;",
        "for (int32_t row = 0; row < rows; ++row) {",
        "    for (int32_t column = 0; column < columns; ++column) {",
        "        const int32_t at = row * row_step + column * step;",
        f"        value = @{name}_tap(value, x[at + i]);",
        "    }",
        "}",
    ]


def without_unused(operands: Sequence[Operand], text: str) -> str:
    """Return C without warnings of operands that it does not use."""
    unused = [op for op in operands if not re.search(rf"\b{op.name}\b", text)]
    return "\n".join([*(f"(void){op.name};" for op in unused), text])


def _is_output(operand: Operand) -> bool:
    return operand.kind == "ptr" and operand.access != "r"


def _element_meaning(value: tir.Expr, names: Sequence[str], *operands: Array) -> Array:
    return evaluate_expression(value, dict(zip(names, operands, strict=True)))


def _loop_meaning(
    functions: Sequence[Intrinsic],
    element: Intrinsic,
    operands: Sequence[Operand],
    *given: Array,
) -> Array:
    values = {op.name: x for op, x in zip(operands, given, strict=True)}
    count = int(values["count"])
    if "rows" in values:
        values["value"] = _reduced_windows(functions[0], values, count)
    for op in operands:
        if op.kind == "ptr":
            values[op.name] = np.asarray(values[op.name])[:count]
    shape = np.broadcast_shapes(*(np.shape(x) for x in values.values()))
    elements = element.meaning(*(values[op.name] for op in element.operands))
    return np.broadcast_to(elements, shape)


def _reduced_windows(tap: Intrinsic, values: Mapping[str, Array], count: int) -> Array:
    """Return the last value of each of `count` elements."""
    x = np.asarray(values["x"])
    value = np.broadcast_to(values["start"], x[:count].shape)
    rows, columns, row_step, step = (int(values[name]) for name in WINDOW_NUMBERS)
    for row, column in product(range(rows), range(columns)):
        at = row * row_step + column * step
        value = tap.meaning(value, x[at : at + count])
    return value


# ---- vectors -------------------------------------------------------------------------


def helium_program(loop: ElementLoop, *, is_tail: bool = False) -> VectorProgram:
    """Return the steps of one vector; `is_tail`: of the lanes in `inside`."""
    k = VectorBuilder(loop.output.name)
    predicate = RegisterPlace(RegisterClass.PREDICATE, BOOL, _helium_lanes(loop))
    given = [VirtualRegister(predicate, "inside")] * is_tail

    def load(address: Address, name: str) -> VirtualRegister:
        access = helium_access("vldr", "z", address.pointer, loop.lane, is_tail)
        row = MVE_MEMORY.rows[access]
        if name:
            return k.named(name, row, address, *given)
        return k(row, address, *given)

    result = loop.compute(k, loop.load(k, load, Index(0)))
    row = MVE_MEMORY.rows[helium_access("vstr", "p", loop.output, loop.lane, is_tail)]
    k.store(row, loop.output[0], result, *given)
    return k.build_vectors()


def helium_text(loop: ElementLoop) -> str:
    count = _helium_lanes(loop)
    names = [pointer.name for pointer in loop.pointers]
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


def helium_access(
    stem: str, mode: str, pointer: PointerOperand, lane: DType, is_tail: bool
) -> str:
    """Return the name of a load or store, predicated if `is_tail`."""
    size = {8: "b", 16: "h", 32: "w"}[pointer.dtype.bits]
    kind = "s" if lane.signed else "u"
    if pointer.dtype.is_float:
        kind = "f"
    return f"{stem}{size}q_{f'{mode}_' * is_tail}{kind}{lane.bits}"


_AT = Index(0, 0, Distance("at", 1))


def riscv_program(loop: ElementLoop, lanes: int) -> VectorProgram:
    """Return the steps of one vector of up to `lanes` elements."""
    k = VectorBuilder(loop.output.name)

    def load(address: Address, _: str) -> VirtualRegister:
        dtype = address.pointer.dtype
        return k(riscv_row(lanes, dtype, f"vle{dtype.bits}_v"), address)

    result, dtype = loop.compute(k, loop.load(k, load, _AT)), loop.output.dtype
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
