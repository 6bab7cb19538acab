"""Interface of operator importers: a node, checked access to it, plain importers.

The reader guarantees neither inputs of operators nor options of custom operators.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from firmwright.base.dtypes import INT16, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.decoded_model import RawNode
from firmwright.ir.core import Attr
from firmwright.ir.graph import TensorType
from firmwright.ir.graph.attributes.base import NO_ATTRS, OpAttrs
from firmwright.ir.graph.attributes.layers import Activation


@dataclass(frozen=True, slots=True)
class ImportContext:
    """The raw node to import, and the types and constants of its tensors."""

    node: RawNode
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[Array | None, ...]


@dataclass(frozen=True, slots=True)
class ImplicitState:
    """A state tensor that a call needs but the model file does not declare.

    Every element is `fill` before the first run. `next_output` is the node's output
    that becomes the next value; None stands for an additional output of the call.
    """

    name: str
    type: TensorType
    fill: int = 0
    next_output: int | None = None


@dataclass(frozen=True, slots=True)
class ImportedCall:
    """An importer's result: operator, attributes and positions of the inputs to keep.

    `updated_inputs` are positions of variable tensors that the call updates; their new
    values follow the node's outputs. Each `implicit_state` adds one input after the
    others and, unless an existing output becomes its next value, one output.
    """

    op: str
    attrs: OpAttrs
    inputs: tuple[int, ...]
    updated_inputs: tuple[int, ...] = ()
    implicit_state: tuple[ImplicitState, ...] = ()


@dataclass(frozen=True, slots=True)
class Importer:
    """The importer of an operator of TFLite.

    `op` is our operator of the usual call; by the types of its tensors, `run` may
    choose another. With `takes_uint8`, quantized uint8 tensors may stay as they are or
    become int8: a model's uint8 tensors are converted to int8, and those of other
    custom operators are not, as their meaning is unknown.
    """

    op: str
    run: Callable[[ImportContext], ImportedCall]
    takes_uint8: bool = False


# ---- checked access ------------------------------------------------------------------


def require_tensors(
    context: ImportContext, inputs: int, *, outputs: int | None = 1
) -> None:
    """Refuse a node without `inputs` inputs, or not with exactly `outputs` outputs.

    With `outputs` None, any number but 0 is accepted.
    """
    if len(context.inputs) < inputs or None in context.inputs[:inputs]:
        noun = "its input" if inputs == 1 else f"all of its {inputs} inputs"
        raise NotSupportedError(f"a node without {noun}")
    count = len(context.outputs)
    if not count:
        raise NotSupportedError("a node without outputs")
    if outputs is not None and count != outputs:
        raise NotSupportedError(f"a node with {count} outputs")


def input_type(context: ImportContext, index: int = 0) -> TensorType:
    kind = context.inputs[index]
    assert kind is not None, "ensured by require_tensors"
    return kind


def check_bias_type(context: ImportContext, x: TensorType, index: int) -> None:
    """Refuse an int16 layer's 32-bit bias that its options do not state.

    LiteRT then reads it as 64-bit integers, beyond its end.
    """
    bias = context.inputs[index] if index < len(context.inputs) else None
    is_short = x.dtype == INT16 and bias is not None and bias.dtype == INT32
    if is_short and context.node.options["quantized_bias_type"] != "int32":
        raise NotSupportedError(
            "int16 with a 32-bit bias, but without quantized_bias_type=INT32 in its "
            "options"
        )


def input_rank(context: ImportContext, index: int = 0) -> int:
    return len(input_type(context, index).shape)


def constant_ints(context: ImportContext, index: int, role: str) -> tuple[int, ...]:
    array = context.constants[index] if index < len(context.constants) else None
    if array is None:
        raise NotSupportedError(f"{role} that are not constant")
    if array.dtype.kind not in "iub":
        raise NotSupportedError(f"{role} of type {array.dtype}")
    return tuple(map(int, array.reshape(-1)))


def constant_int(context: ImportContext, index: int, role: str) -> int:
    values = constant_ints(context, index, role)
    if len(values) != 1:
        raise NotSupportedError(f"{len(values)} {role}, expected 1")
    return values[0]


def checked_int_option(option: Attr) -> int:
    """Return an option that the reader has decoded as an integer."""
    assert isinstance(option, int)
    return option


def bool_option(context: ImportContext, name: str) -> bool:
    return bool(context.node.options[name])


def float_option(context: ImportContext, name: str) -> float:
    """Return an option that the reader has decoded as a number."""
    value = context.node.options[name]
    assert isinstance(value, int | float)
    return float(value)


def is_unsigned(context: ImportContext) -> bool:
    """Return whether the model's operands are uint8; see signed_tensors.py."""
    return bool(context.node.options.get("unsigned"))


def int_option(context: ImportContext, name: str) -> int:
    """Return a required integer or flag."""
    value = context.node.options.get(name)
    if not isinstance(value, int):
        raise NotSupportedError(f"options without the integer {name}")
    return int(value)


_ACTIVATIONS: Mapping[str, Activation] = {
    "NONE": "none",
    "RELU": "relu",
    "RELU6": "relu6",
    "RELU_N1_TO_1": "relu_n1_to_1",
    "SIGN_BIT": "none",
    "TANH": "none",
}
"""Our activation of each one of TFLite, which is a range of values.

The reference kernels take TANH and SIGN_BIT, which are none, for no activation.
"""


def import_activation(value: object) -> Activation:
    activation = _ACTIVATIONS.get(str(value))
    if activation is None:
        raise NotSupportedError(f"fused activation {value}")
    return activation


def fused_activation(context: ImportContext) -> Activation:
    """Return the activation in the node's options."""
    return import_activation(context.node.options["fused_activation_function"])


# ---- plain importers -----------------------------------------------------------------


def _no_attrs(context: ImportContext) -> OpAttrs:
    return NO_ATTRS


def plain_importer(
    op: str,
    inputs: int = 1,
    attrs: Callable[[ImportContext], OpAttrs] = _no_attrs,
    keep: tuple[int, ...] | None = None,
    *,
    outputs: int | None = 1,
) -> Importer:
    """Return an importer of `op` with the inputs `keep`, by default all required."""

    def run(context: ImportContext) -> ImportedCall:
        require_tensors(context, inputs, outputs=outputs)
        positions = tuple(range(inputs)) if keep is None else keep
        return ImportedCall(op, attrs(context), positions)

    return Importer(op, run)


def copy_importer(
    op: str, inputs: int, attrs: Callable[[ImportContext], OpAttrs]
) -> Importer:
    """Return a data movement's importer; `attrs` replaces inputs after the first."""
    return plain_importer(op, inputs, attrs, (0,), outputs=None)
