"""The builder of a backend's kernel: a region of the graph, declared and ready to be written.

In: a graph function that carries the backend's target. Out: a PrimFunc whose parameters are the
function's parameters, then its results; constants as the backend wants them; C files. What the
region consists of is looked up by operator:

    def lower(self, kernel):
        conv = kernel.call("conv2d")                  # types, attributes, constants of the call
        packed = kernel.constant("packed", pack(conv.constant(1).array()), INT8)
        kernel.run("npu_conv", [kernel.inputs[0], packed, kernel.outputs[0], conv.int_attr("...")])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from firmwright.base.dtypes import UINT8, DType
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.core import Attr, Target
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import Builder
from firmwright.ops.kernel import KERNEL_ALIGNMENT
from firmwright.ops.registry import op_table
from firmwright.targets.target_kind import LoweredFunction

KernelArgument: TypeAlias = tir.Buffer | int


class BackendKernel(Builder):
    """Declares `x`, `x_1`... for the function's parameters and `y`... for its results."""

    def __init__(self, function: Function, module: IRModule, target: Target) -> None:
        self.calls = flatten_calls(function, module)
        super().__init__(function.name, self.calls[-1].span)
        self.graph = function
        self.module = module
        self.target = target
        self.files: dict[str, bytes] = {}
        self.inputs = tuple(
            self.buffer_param("x", v.type.dtype, v.type.shape, "in", KERNEL_ALIGNMENT)
            for v in function.params
        )
        self.outputs = tuple(
            self.buffer_param("y", v.type.dtype, v.type.shape, "out", KERNEL_ALIGNMENT)
            for v in function.results
        )
        self._externs: list[str] = []
        self._workspaces: list[tir.Buffer] = []

    @property
    def entry(self) -> str:
        """The full name of the pattern's entry, "" where there are several or none."""
        return str(self.graph.attrs.get("composite", ""))

    @property
    def symbol(self) -> str:
        """A C name that nothing else has, in this model or another: the kernel's own and `_run`."""
        return f"{self.graph.attrs['symbol']}_run"

    @property
    def ops(self) -> tuple[OpCall, ...]:
        """Every call of the region, in order."""
        return tuple(make_op_call(call, self.module) for call in self.calls)

    def call(self, *names: str) -> OpCall:
        """The first call of one of those operators."""
        found = self.find(*names)
        if found is None:
            raise InternalError(f"{self.name} has no call of {' or '.join(names)}")
        return found

    def find(self, *names: str) -> OpCall | None:
        """As `call`; None where there is none."""
        found = next((call for call in self.calls if call.op in names), None)
        return None if found is None else make_op_call(found, self.module)

    def scope(self, buffer: tir.Buffer) -> str:
        """The pool in which an input or output lies; "" if the planner will choose."""
        values = (*self.graph.params, *self.graph.results)
        known = dict(zip((*self.inputs, *self.outputs), values, strict=True))
        return known[buffer].virtual_device.memory_scope

    # ---- what the kernel is made of ------------------------------------------------------------

    def workspace(self, name: str, elements: int, dtype: DType = UINT8) -> tir.Buffer:
        """Memory for the time of one call, which the planner places."""
        alignment = max(KERNEL_ALIGNMENT, dtype.size_bytes)
        buffer = tir.Buffer(self.unique(name), dtype, (elements,), alignment=alignment)
        self._workspaces.append(buffer)
        return buffer

    def file(self, name: str, text: str | bytes) -> None:
        """A C source or header of this region's own, in the backend's folder of the project."""
        self.files[name] = text.encode() if isinstance(text, str) else text

    def run(self, function: str, arguments: Sequence[KernelArgument]) -> None:
        """Calls an intrinsic with buffers as a whole and numbers.

        What it reads and writes follows from what the buffers are.
        """
        self.evaluate(function, [self._argument(item) for item in arguments])

    def extern(self, symbol: str, arguments: Sequence[KernelArgument]) -> None:
        """Calls the C function `symbol`, which is declared by its arguments: there is no table."""
        self._externs.append(symbol)
        self.run(symbol, arguments)

    def _argument(self, item: KernelArgument) -> tir.AccessPtr | int:
        if isinstance(item, int):
            return item
        return self.pointer(item, 0, item.elements, self._access(item))

    def _access(self, buffer: tir.Buffer) -> tir.AccessMode:
        if buffer in self.outputs:
            return "w"
        return "r" if buffer in self.inputs or buffer.scope == "const" else "rw"

    def lowered(self) -> LoweredFunction:
        """The kernel; attributes that the driver knows better are its own."""
        table = op_table()
        kinds = "+".join(call.op for call in self.calls)
        attrs: dict[str, Attr] = {}
        if self._externs:
            attrs["extern"] = tuple(dict.fromkeys(self._externs))
        made = self.build(
            op=self.entry.partition(".")[2] or kinds,
            schedule=self.target.kind,
            comment=_shapes(self.graph, kinds),
            macs=sum(table[call.op].macs(make_op_call(call, self.module)) for call in self.calls),
            **attrs,
        )
        body = made.body
        for buffer in reversed(self._workspaces):
            body = tir.Allocate(buffer, body, "scratch")
        return LoweredFunction(replace(made, body=body), dict(self.constants), dict(self.files))


def flatten_calls(function: Function, module: IRModule) -> tuple[Call, ...]:
    """The operators of a region, those of the composites in it included, in order.

    A composite has its values' names from the function that it was cut out of, so they fit.
    """
    found: list[Call] = []
    for call in function.body:
        inner = module.callee(call.op)
        if isinstance(inner, Function):
            found += flatten_calls(inner, module)
        else:
            found.append(call)
    return tuple(replace(call, target="") for call in found)


def _shapes(function: Function, kinds: str) -> str:
    def shown(shape: tuple[int, ...]) -> str:
        kept = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
        return "x".join(map(str, kept)) or "scalar"

    ins = ", ".join(shown(value.type.shape) for value in function.params)
    outs = ", ".join(shown(value.type.shape) for value in function.results)
    return f"{kinds} {ins} -> {outs}"
