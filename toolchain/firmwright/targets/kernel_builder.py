"""Builder of backend kernels for a region of the graph.

The parameters of the PrimFunc are those of the graph function, followed by its results.
Operators of the region are looked up by name:

    def lower(self, kernel):
        conv = kernel.call("conv2d")  # types, attributes, constants of the call
        packed = kernel.constant("packed", pack(conv.constant(1).array()), INT8)
        stride = conv.attributes(Conv2DAttrs).stride[0]
        kernel.run("npu_conv", [kernel.inputs[0], packed, kernel.outputs[0], stride])
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from firmwright.base.dtypes import UINT8, DType
from firmwright.base.errors import InternalError, PluginError
from firmwright.ir import tir
from firmwright.ir.core import Attr, Target
from firmwright.ir.graph import Call, Function, OpCall
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Value
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.plan import OVERLAYS_ATTR
from firmwright.ops.kernel import KERNEL_ALIGNMENT
from firmwright.ops.registry import op_table
from firmwright.targets.target_kind import LoweredFunction

_NAMED_CALLS = 4
"""Number of operators up to which a kernel's kind lists them."""
KernelArgument: TypeAlias = tir.Buffer | int


class BackendKernel(Builder):
    """Builds a kernel with parameters `x`, `x_1`... and results `y`..."""

    def __init__(self, function: Function, module: IRModule, target: Target) -> None:
        self.calls = flatten_calls(function, module)
        super().__init__(function.name, self.calls[-1].span)
        self.graph = function
        self.module = module
        self.target = target
        self.files: dict[str, bytes] = {}
        self.inputs = tuple(self._param("x", v, "in") for v in function.params)
        self.outputs = tuple(self._param("y", v, "out") for v in function.results)
        self._externs: list[str] = []
        self._workspaces: list[tir.Buffer] = []
        self._overlays: list[tuple[str, str, int]] = []

    def _param(self, name: str, value: Value, role: tir.ParamRole) -> tir.Buffer:
        kind = value.type
        return self.buffer_param(name, kind.dtype, kind.shape, role, KERNEL_ALIGNMENT)

    @property
    def entry(self) -> str:
        """The full name of the matched pattern; "" for merged regions."""
        return str(self.graph.attrs.get("composite", ""))

    @property
    def symbol(self) -> str:
        """A C name that is unique across models: the kernel's name and `_run`."""
        return f"{self.graph.attrs['symbol']}_run"

    @property
    def ops(self) -> tuple[OpCall, ...]:
        return tuple(make_op_call(call, self.module) for call in self.calls)

    def call(self, *names: str) -> OpCall:
        """Return the first call of one of these operators, or raise InternalError."""
        op_call = self.find(*names)
        if op_call is None:
            raise InternalError(f"{self.name} has no call of {' or '.join(names)}")
        return op_call

    def find(self, *names: str) -> OpCall | None:
        """Return the first call of one of these operators, or None."""
        for call in self.calls:
            if call.op in names:
                return make_op_call(call, self.module)
        return None

    def scope(self, buffer: tir.Buffer) -> str:
        """Return the pool assigned to an input or output; "" if the planner chooses."""
        values = (*self.graph.params, *self.graph.results)
        values_by_buffer = dict(zip((*self.inputs, *self.outputs), values, strict=True))
        return values_by_buffer[buffer].virtual_device.memory_scope

    def workspace(
        self,
        name: str,
        elements: int,
        dtype: DType = UINT8,
        alignment: int = KERNEL_ALIGNMENT,
    ) -> tir.Buffer:
        """Declare memory for the duration of one call."""
        alignment = max(alignment, dtype.size_bytes)
        buffer = tir.Buffer(self.unique(name), dtype, (elements,), alignment=alignment)
        self._workspaces.append(buffer)
        return buffer

    def overlay(self, tensor: tir.Buffer, workspace: str, offset: int) -> None:
        """Declare that the kernel needs no copy of an input or output at this place.

        Elsewhere, the tensor and the workspace do not overlap.
        """
        self._overlays.append((tensor.name, workspace, offset))

    def file(self, name: str, text: str | bytes) -> None:
        """Add a C source or header to the backend's folder in the project."""
        data = text.encode() if isinstance(text, str) else text
        if self.files.setdefault(name, data) != data:
            what = f"the file {name} is written twice, with other content."
            raise PluginError(what, where=f"@{self.graph.name}")

    def run(self, function: str, arguments: Sequence[KernelArgument]) -> None:
        """Call an intrinsic with numbers and whole buffers, accessed by their roles."""
        self.evaluate(function, [self._argument(item) for item in arguments])

    def extern(self, symbol: str, arguments: Sequence[KernelArgument]) -> None:
        """Call the C function `symbol`, declared according to the arguments."""
        self._externs.append(symbol)
        self.run(symbol, arguments)

    def _argument(self, item: KernelArgument) -> tir.AccessPtr | int:
        if isinstance(item, int):
            return item
        access: tir.AccessMode = "rw"
        if item in self.outputs:
            access = "w"
        elif item in self.inputs or item.scope == "const":
            access = "r"
        return self.pointer(item, 0, item.elements, access)

    def lowered(self) -> LoweredFunction:
        kinds = "+".join([call.op for call in self.calls])
        if len(self.calls) > _NAMED_CALLS:
            kinds = f"{len(self.calls)} operators"
        externs = tuple(dict.fromkeys(self._externs))
        attrs: dict[str, Attr] = {"extern": externs} if externs else {}
        if self._overlays:
            attrs[OVERLAYS_ATTR] = tuple(self._overlays)
        table, macs = op_table(), 0
        for call in self.calls:
            macs += table[call.op].macs(make_op_call(call, self.module))
        prim_func = self.build(
            op=self.entry.partition(".")[2] or kinds,
            schedule=self.target.kind,
            comment=_shapes(self.graph, kinds),
            macs=macs,
            **attrs,
        )
        body = prim_func.body
        for buffer in reversed(self._workspaces):
            body = tir.Allocate(buffer, body, "scratch")
        function = replace(prim_func, body=body)
        return LoweredFunction(function, dict(self.constants), dict(self.files))


def flatten_calls(function: Function, module: IRModule) -> tuple[Call, ...]:
    """Return the operators of a region in order, including those of nested composites.

    Composites keep the value names of their original function.
    """
    operators: list[Call] = []
    for call in function.body:
        inner = module.callee(call.op)
        if isinstance(inner, Function):
            operators += flatten_calls(inner, module)
        else:
            operators.append(call)
    return tuple(replace(call, target="") for call in operators)


def _shapes(function: Function, kinds: str) -> str:
    def shown(shape: tuple[int, ...]) -> str:
        dims = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
        return "x".join(map(str, dims)) or "scalar"

    ins = ", ".join(shown(value.type.shape) for value in function.params)
    outs = ", ".join(shown(value.type.shape) for value in function.results)
    return f"{kinds} {ins} -> {outs}"
