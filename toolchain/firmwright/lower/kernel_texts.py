"""Texts about calls and kernels, in comments of generated code and in tuning logs."""

from collections.abc import Sequence

from firmwright.ir.graph.attributes.layers import activation_of
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.nodes import Call, TensorType, Value
from firmwright.ops.schedule import LoweringCandidate, ScheduleConfig

_EXPRESSION_SHOWN_MAX = 50
"""Length of the longest formula that fits in the comment of a kernel."""


def format_schedule(rule: str, config: ScheduleConfig) -> str:
    """Format the name of a schedule and its configuration: `gemm columns=2 rows=4`."""
    words = [rule]
    for key, value in config.settings().items():
        words.append(f"{key}={value}")
    return " ".join(words)


def words_of(candidate: LoweringCandidate) -> str:
    """Return a candidate's schedule and configuration, as its kernel's attribute."""
    return str(candidate.function.attrs["schedule"])


def format_shapes(call: Call) -> str:
    """Format operator, shapes and activation: `conv2d 25x5x64 -> 25x5x64, relu`."""
    inputs = _shapes(call.variables)
    outputs = _shapes(call.outputs)
    text = f"{call.op} {inputs} -> {outputs}"
    activation = activation_of(call.attrs)
    if activation != "none":
        text += f", {activation}"
    if isinstance(call.attrs, ExpressionAttrs):
        formula = call.attrs.formula
        if len(formula) <= _EXPRESSION_SHOWN_MAX:
            text += f", {formula}"
    return text


def _shapes(values: Sequence[Value]) -> str:
    return ", ".join([_shape(value.type) for value in values])


def _shape(kind: TensorType) -> str:
    """Format a shape without a batch of one: `25x5x64`."""
    shape = kind.shape
    if len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return "x".join(map(str, shape)) or "scalar"
