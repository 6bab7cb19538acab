"""Verifier of graph functions, run on the output of frontends and graph passes.

* Names: the invariants of `nodes.py`; every use equals the definition; results are
  defined.
* Types: shapes are static with positive extents. A quantization axis exists and has one
  scale per index, or one for all.
* Constants are in the module's table, with the dtype and shape of the value.
* Calls: the operator is in the operator table or, with a leading `@`, a function of the
  module with matching parameters and results. The operator's shape rule gives the
  output types.
* Targets of calls and virtual devices are in the module's target table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from firmwright.base.dtypes import BOOL
from firmwright.base.errors import FirmwrightError, ModelError, NotSupportedError
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.graph.attributes import attributes_class
from firmwright.ir.graph.attributes.base import FreeAttrs, OpAttrs
from firmwright.ir.graph.attributes.control import IfAttrs, WhileAttrs
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import (
    CONTROL_FLOW_OPS,
    Call,
    Function,
    State,
    TensorType,
    Value,
)
from firmwright.ir.graph.op_call import MeaningTable, OperatorMeaning
from firmwright.ir.module import IRModule
from firmwright.ir.syntax import format_shape

_TENSOR_ROLES = ("in", "out", "inout")
"""Roles of the parameters of a kernel that are tensors of the graph."""


def verify_graph(function: Function, module: IRModule, ops: MeaningTable) -> None:
    """Raise ModelError with all diagnostics if `function` is invalid."""
    diagnostics = diagnose_graph(function, module, ops)
    if diagnostics:
        raise ModelError("\n".join(diagnostics), where=module.name)


def diagnose_graph(
    function: Function, module: IRModule, ops: MeaningTable
) -> list[str]:
    checker = _GraphVerifier(function, module, ops)
    checker.verify()
    return [f"@{function.name}: {message}" for message in checker.diagnostics]


@dataclass(frozen=True, slots=True)
class _GraphVerifier:
    function: Function
    module: IRModule
    ops: MeaningTable
    diagnostics: list[str] = field(default_factory=list)
    made: dict[str, Value] = field(default_factory=dict)

    def report(self, message: str) -> None:
        self.diagnostics.append(message)

    def verify(self) -> None:
        for value in self.function.params:
            self._make(value, "")
            if value.constant is not None:
                self.report(f"the parameter {value.name} is a constant")
        for state in self.function.state:
            self._make(state.value, "the state: ")
            self._initial(state)
        for call in self.function.body:
            place = f" at {call.span}" if call.span != Span("") else ""
            location = f"{call.op}{place}: "
            for operand in call.inputs:
                if operand is not None:
                    self._use(operand, location)
            self._call(call, location)
            for value in call.outputs:
                self._make(value, location)
                if value.constant is not None:
                    self.report(f"{location}the output {value.name} is a constant")
        for value in self.function.results:
            self._use(value, "the result: ")
        for state in self.function.state:
            self._use(state.next, f"the state {state.value.name}: ")

    def _make(self, value: Value, location: str) -> None:
        if value.name in self.made:
            self.report(f"{location}{value.name} is defined twice")
        self.made[value.name] = value
        self._type(value, location)

    def _use(self, value: Value, location: str) -> None:
        definition = self.made.get(value.name)
        if definition is None and value.constant is not None:
            self._make(value, location)
            self._constant(value, location)
        elif definition is None:
            self.report(f"{location}{value.name} is used before its definition")
        elif definition != value:
            use = f"{location}{value.name} is used as a value"
            self.report(f"{use} that differs from its definition")

    def _type(self, value: Value, location: str) -> None:
        shape, quantization = value.type.shape, value.type.quantization
        subject = f"{location}{value.name}"
        if min(shape, default=1) < 1:
            self.report(f"{subject} has the shape {shape}, not all positive")
        target = value.virtual_device.target
        if target and target not in self.module.targets:
            self.report(f"{subject} has the unknown target {target!r}")
        if quantization is None or quantization.axis is None:
            return
        axis, count = quantization.axis, len(quantization.scales)
        if axis >= len(shape):
            self.report(f"{subject} is quantized along axis {axis} of {shape}")
        elif count not in (1, shape[axis]):
            self.report(f"{subject} has {count} scales for {shape[axis]} channels")

    def _constant(self, value: Value, location: str) -> None:
        constant = self.module.constants.get(value.constant or "")
        subject = f"{location}{value.name}"
        if constant is None:
            self.report(f"{subject} refers to the unknown constant {value.constant!r}")
        elif (constant.dtype, constant.shape) != (value.type.dtype, value.type.shape):
            found = format_shape(constant.dtype, constant.shape)
            self.report(
                f"{subject} is {_format_type(value.type)}, its constant {found}"
            )

    def _initial(self, state: State) -> None:
        kind, name = state.value.type, state.value.name
        constant = self.module.constants.get(state.initial)
        shape, next_shape = _format_type(kind), _format_type(state.next.type)
        if state.value.constant is not None:
            self.report(f"the state {name} is a constant")
        if constant is None:
            self.report(
                f"the state {name} has the unknown initial constant {state.initial!r}"
            )
        elif (begins := format_shape(constant.dtype, constant.shape)) != shape:
            self.report(
                f"the state {name} is {shape}, its initial constant is {begins}"
            )
        if next_shape != shape:
            self.report(f"the state {name} is {shape}, its next value is {next_shape}")

    def _call(self, call: Call, location: str) -> None:
        if call.target and call.target not in self.module.targets:
            self.report(f"{location}the target {call.target!r} is unknown")
        op = self.ops.get(call.op)
        expected = attributes_class(call.op)
        if op is None and not call.op.startswith("@"):
            self.report(f"{location}the operator {call.op!r} is unknown")
        elif type(call.attrs) is not expected:
            self.report(f"{location}{_wrong_attributes(call, expected)}")
        elif call.op.startswith("@"):
            self._function_call(call, location)
        elif call.op in CONTROL_FLOW_OPS:
            self._control(call, location)
        elif op is not None:
            self._operator_call(op, call, location)

    def _operator_call(self, op: OperatorMeaning, call: Call, location: str) -> None:
        try:
            self._outputs(call, op.infer(make_op_call(call, self.module)), location)
        except (FirmwrightError, NotSupportedError) as error:
            self.report(f"{location}{error}")
        except (KeyError, IndexError) as error:  # the call is incomplete
            self.report(f"{location}an input or attribute is missing ({error!r})")
        except (TypeError, ValueError, ArithmeticError) as error:
            # An attribute has the wrong type.
            self.report(f"{location}an input or attribute is invalid ({error})")

    def _outputs(
        self, call: Call, inferred: Sequence[TensorType], location: str
    ) -> None:
        if len(inferred) != len(call.outputs):
            found = f"{location}{call.op} has {len(call.outputs)} outputs"
            self.report(f"{found}, expected {len(inferred)}")
            return
        for value, kind in zip(call.outputs, inferred, strict=True):
            if (value.type.shape, value.type.dtype) != (kind.shape, kind.dtype):
                found = f"{location}{value.name} is {_format_type(value.type)}"
                self.report(f"{found}, {call.op} returns {_format_type(kind)}")

    def _control(self, call: Call, location: str) -> None:
        """Check that inputs and outputs match every function that the call runs."""
        inputs = [value for value in call.inputs if value is not None]
        outputs = list(call.outputs)
        if isinstance(call.attrs, IfAttrs):
            branch = (inputs[1:], outputs)
            signatures = {
                "then": (call.attrs.then, branch),
                "else": (call.attrs.else_, branch),
            }
            first = inputs[0].type if inputs else None
            if first is None or first.dtype != BOOL or first.elements != 1:
                self.report(f"{location}the first input is not a boolean")
        else:
            loop = call.attributes(WhileAttrs)
            signatures = {
                "cond": (loop.cond, (inputs, [Value("", TensorType((), BOOL))])),
                "body": (loop.body, (inputs, outputs)),
            }
        for attr, (name, signature) in signatures.items():
            callee = self.module.functions.get(name)
            if not isinstance(callee, Function) or callee.state:
                found = f"{location}{attr} is {name!r}"
                self.report(f"{found}, not a graph function without state")
                continue
            own = [_types(callee.params), _types(callee.results)]
            if own != list(map(_types, signature)):
                problem = f"inputs and outputs do not match those of @{name}"
                self.report(f"{location}{problem}")

    def _function_call(self, call: Call, location: str) -> None:
        callee = self.module.functions.get(call.op[1:])
        if callee is None:
            self.report(f"{location}the function {call.op} is unknown")
            return
        if callee.name == self.function.name:
            self.report(f"{location}the function calls itself")
            return
        if isinstance(callee, tir.PrimFunc):
            want: list[tuple[str, int]] = []
            for param in callee.params:
                buffer = param.value
                if param.role in _TENSOR_ROLES and isinstance(buffer, tir.Buffer):
                    want.append((buffer.dtype.name, buffer.elements))
        else:
            want = _types((*callee.params, *callee.results))
        if _types(call.values) != want:
            self.report(f"{location}inputs and outputs do not match those of {call.op}")


def _wrong_attributes(call: Call, expected: type[OpAttrs]) -> str:
    """Return a clause about attributes of another class than that of the operator."""
    if isinstance(call.attrs, FreeAttrs):
        names = ", ".join(name for name, _ in call.attrs.pairs)
        return f"{call.op} has no attributes, found {names}"
    return (
        f"the attributes are {type(call.attrs).__name__}, expected {expected.__name__}"
    )


def _types(values: Sequence[Value]) -> list[tuple[str, int]]:
    return [(value.type.dtype.name, value.type.elements) for value in values]


def _format_type(kind: TensorType) -> str:
    return format_shape(kind.dtype, kind.shape)
