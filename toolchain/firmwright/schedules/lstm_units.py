"""What families with vectors share of an LSTM's units: int16 gates to hidden values.

The rows of gates are [gate, unit], with the cell gate last, so that one call of the
logistic function takes the three others:

    i, f, o = logistic(rows 0 to 2);  g = tanh(row 3)
    cells   = f cells + i g
    hidden  = o tanh(cells)

Semantics: ops/lstm.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    binary_expr,
    call_intrinsic,
    maximum,
    minimum,
)
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import Compute, ElementLoop, element_intrinsics
from firmwright.kernels.isa.lanes import constant, saturate
from firmwright.kernels.program import PointerOperand
from firmwright.ops.gate_functions import GATE_BITS, GateFunction
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm_layer import (
    HIDDEN_STATE,
    cell_bits,
    cell_clip,
    hidden_factor,
)
from firmwright.ops.requantize import per_tensor_quant

GATE_ROWS = (0, 1, 3, 2)
"""The gates in the order of rows: input, forget, output, cell."""
FRACTION_BITS = 15
"""The fraction bits of an activated gate."""
_GATES = ("input", "forget", "cell")
_HALF = 1 << 30
"""The multiplier of a quantized factor of 1/2."""


@dataclass(frozen=True, slots=True)
class FamilyText:
    """The C of a micro-kernel in a family's assembly.

    It needs the feature `requires` and takes `instructions` for each vector of `lanes`,
    and `once` more.
    """

    requires: str
    text: str
    lanes: int
    instructions: int
    once: int
    definitions: tuple[str, ...] = ()

    def count(self, elements: int) -> int:
        return self.once + divide_up(elements, self.lanes) * self.instructions


# ---- micro-kernels -------------------------------------------------------------------


def gate_function_name(function: GateFunction, requires: str) -> str:
    return f"{requires}_{function.name}"


def call_gate_function(
    requires: str,
    b: Kernel,
    function: GateFunction,
    y: tir.AccessPtr,
    x: tir.AccessPtr,
) -> None:
    """Emit the call of a family's micro-kernel for all elements of x."""
    b.evaluate(gate_function_name(function, requires), [y, x, x.extent])


def gate_function_loop(compute: Compute) -> ElementLoop:
    x, y = PointerOperand("x", INT16), PointerOperand("y", INT16, "w")
    return ElementLoop((x,), y, INT16, compute)


def gate_function_kernel(function: GateFunction, family: FamilyText) -> Intrinsic:
    """Return the micro-kernel of LiteRT's logistic or tanh of 16-bit sums."""

    def meaning(y: Array, x: Array, count: Array) -> Array:
        return function.apply(np.asarray(x)[:count]).astype(np.int16)

    call = f"@{function.name}(x[i])"
    return Intrinsic(
        gate_function_name(function, family.requires),
        (
            *pointers(INT16, "w", y=1),
            *pointers(INT16, x=1),
            *immediates("count"),
        ),
        meaning,
        f"for (int32_t i = 0; i < count; ++i) {{\n    y[i] = (int16_t){call};\n}}",
        f"{function.name} of `count` values.",
        requires=family.requires,
        text={"gnu": family.text},
        definitions=family.definitions,
        count=lambda args: family.count(args[2]),
        calls=(function.name,),
    )


def cell_shift(shift: int, *, twice: bool) -> int:
    """Return what the micro-kernel of cells shifts by for a factor of 2^shift.

    TFLM's products are halved before, and rounded `twice`.
    """
    return shift + twice


def _divided(twice: bool, x: ArithExpr, shift: ArithExpr | int) -> ArithExpr:
    """Return x * 2^shift to nearest; `twice`: halved before."""
    if twice:
        return call_intrinsic("requantize_twice", [x, _HALF, shift], INT32)
    right = 0 - shift
    half = binary_expr("shl", constant(1, INT32), right - 1)
    return binary_expr("shr", x + half - (x < 0).cast(INT32), right)


def _cell_value(twice: bool, **x: ArithExpr) -> ArithExpr:
    """Return forget * cells + input * cell, with the values of these gates."""
    retained = x["forget"].cast(INT32) * x["cells"].cast(INT32)
    added = x["input"].cast(INT32) * x["cell"].cast(INT32)
    total = _divided(twice, retained, cell_shift(-FRACTION_BITS, twice=twice))
    total = total + _divided(twice, added, x["shift"])
    return minimum(maximum(total, x["low"]), x["high"]).cast(INT16)


def cell_loop(compute: Compute) -> ElementLoop:
    gates = [PointerOperand(name, INT16) for name in _GATES]
    cells = PointerOperand("cells", INT16, "rw")
    return ElementLoop((cells, *gates), cells, INT32, compute)


def cell_kernels(
    name: str, family: FamilyText, *, twice: bool = False
) -> tuple[Intrinsic, ...]:
    return element_intrinsics(
        name,
        (
            *pointers(INT16, "rw", cells=1),
            *pointers(INT16, **dict.fromkeys(_GATES, 1)),
            *immediates("shift", "low", "high", "count"),
        ),
        partial(_cell_value, twice),
        "Updates `count` cells of an LSTM.",
        family.requires,
        family.text,
        lambda args: family.count(args[-1]),
        family.definitions,
    )


def _hidden_value(**x: ArithExpr) -> ArithExpr:
    """Return output * tanh(cells), of which `cells` is the tanh, quantized."""
    product = x["output"].cast(INT32) * x["cells"].cast(INT32)
    scale = [product, x["multiplier"], x["shift"]]
    moved = call_intrinsic("requantize_twice", scale, INT32) + x["zero_point"]
    return saturate(moved, INT8).cast(INT8)


def hidden_loop(compute: Compute) -> ElementLoop:
    return ElementLoop(
        (PointerOperand("output", INT16), PointerOperand("cells", INT16)),
        PointerOperand("y", INT8, "w"),
        INT32,
        compute,
    )


def hidden_kernels(name: str, family: FamilyText) -> tuple[Intrinsic, ...]:
    return element_intrinsics(
        name,
        (
            *pointers(INT16, output=1, cells=1),
            *pointers(INT8, "w", y=1),
            *immediates("multiplier", "shift", "zero_point", "count"),
        ),
        _hidden_value,
        "Computes `count` hidden values of an LSTM from activated cells; shifts right.",
        family.requires,
        family.text,
        lambda args: family.count(args[-1]),
        family.definitions,
    )


# ---- a step --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnitKernels:
    """The names of a family's micro-kernels of cells and of hidden values.

    `activate(function, y, x)` emits a function of gates; with `rounds_twice`, products
    of cells are TFLM's.
    """

    cells: str
    hidden: str
    activate: Callable[[GateFunction, tir.AccessPtr, tir.AccessPtr], None]
    rounds_twice: bool = False


@dataclass(frozen=True, slots=True)
class UnitVectors:
    """Emits the functions of all units at a time, from `gates` in the order of rows."""

    op: OpCall
    b: Kernel
    gates: tir.Buffer
    kernels: UnitKernels

    @property
    def units(self) -> int:
        return self.op.input(HIDDEN_STATE).shape[1]

    def emit(self, n: ArithExpr, row: ArithExpr) -> None:
        """Update the cells of batch `n`, and write row `row` of the output."""
        op, b, kernels, units = self.op, self.b, self.kernels, self.units
        cells = b.outputs[2]
        i, f, o, g = (self.gate(place) for place in range(len(GATE_ROWS)))
        of_batch = b.pointer(cells, n * units, units)
        logistic = GateFunction(GATE_BITS, is_tanh=False)
        kernels.activate(logistic, self.gate(0, 3, "w"), self.gate(0, 3))
        tanh_of_gate = GateFunction(GATE_BITS, is_tanh=True)
        kernels.activate(tanh_of_gate, self.gate(3, access="w"), g)
        limit = int(cell_clip(op))
        low, high = (-limit, limit) if limit else (INT16.min, INT16.max)
        shift = cell_shift(-FRACTION_BITS - cell_bits(op), twice=kernels.rounds_twice)
        updated = b.pointer(cells, n * units, units, "rw")
        b.evaluate(kernels.cells, [updated, i, f, g, shift, low, high, units])
        tanh_of_cell = GateFunction(cell_bits(op), is_tanh=True)
        kernels.activate(tanh_of_cell, self.gate(3, access="w"), of_batch)
        zero_point = per_tensor_quant(op.input(HIDDEN_STATE)).zero_point
        y = b.pointer(b.y, row * units, units, "w")
        b.evaluate(kernels.hidden, [o, g, y, *hidden_factor(op), zero_point, units])

    def gate(
        self, place: int, count: int = 1, access: tir.AccessMode = "r"
    ) -> tir.AccessPtr:
        """Return a pointer to the values of `count` gates, in the order of rows."""
        units = self.units
        return self.b.pointer(self.gates, place * units, count * units, access)
