"""Operators on corresponding elements; most have our name in capital letters."""

from collections.abc import Mapping

from firmwright.base.dtypes import FLOAT16, FLOAT32, INT16
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    bool_option,
    float_option,
    fused_activation,
    input_type,
    plain_importer,
    require_tensors,
)
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.attributes.values import GeluAttrs, LeakyReluAttrs

_UNARY = (
    "abs",
    "cast",
    "ceil",
    "cos",
    "elu",
    "exp",
    "floor",
    "hard_swish",
    "log",
    "logical_not",
    "logistic",
    "neg",
    "quantize",
    "relu",
    "relu6",
    "relu_0_to_1",
    "relu_n1_to_1",
    "round",
    "rsqrt",
    "sign",
    "sin",
    "sqrt",
    "square",
    "tanh",
)

_BINARY = (
    "atan2",
    "bitwise_xor",
    "equal",
    "floor_div",
    "floor_mod",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
    "maximum",
    "minimum",
    "not_equal",
    "pow",
    "prelu",
    "right_shift",
    "squared_difference",
)

_ACTIVATED = ("add", "div", "mul", "sub")


def _activation_attrs(context: ImportContext) -> ActivationAttrs:
    options = context.node.options
    if context.outputs[0].dtype == INT16 and options.get("pot_scale_int16"):
        raise NotSupportedError("int16 with power-of-two scales")
    return ActivationAttrs(activation=fused_activation(context))


def _gelu_attrs(context: ImportContext) -> GeluAttrs:
    return GeluAttrs(approximate=bool_option(context, "approximate"))


def _leaky_relu_attrs(context: ImportContext) -> LeakyReluAttrs:
    return LeakyReluAttrs(alpha=float_option(context, "alpha"))


def _select(context: ImportContext) -> ImportedCall:
    require_tensors(context, 3)
    condition, x = input_type(context), input_type(context, 1)
    one = condition.elements == 1 or condition.shape == x.shape
    if context.node.op == "SELECT" and not one:
        raise NotSupportedError(
            f"a SELECT by {list(condition.shape)} of {list(x.shape)}; use SELECT_V2"
        )
    return ImportedCall("select", NO_ATTRS, (0, 1, 2))


def _dequantize(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    types = input_type(context).dtype, context.outputs[0].dtype
    op = "cast" if types == (FLOAT16, FLOAT32) else "dequantize"
    return ImportedCall(op, NO_ATTRS, (0,))


def _add_n(context: ImportContext) -> ImportedCall:
    require_tensors(context, max(1, len(context.inputs)))
    return ImportedCall("add_n", NO_ATTRS, tuple(range(len(context.inputs))))


IMPORTERS: Mapping[str, Importer] = {
    **{name.upper(): plain_importer(name) for name in _UNARY},
    **{name.upper(): plain_importer(name, 2) for name in _BINARY},
    **{name.upper(): plain_importer(name, 2, _activation_attrs) for name in _ACTIVATED},
    "ADD_N": Importer("add_n", _add_n),
    "DEQUANTIZE": Importer("dequantize", _dequantize),
    "GELU": plain_importer("gelu", 1, _gelu_attrs),
    "LEAKY_RELU": plain_importer("leaky_relu", 1, _leaky_relu_attrs),
    "SELECT": Importer("select", _select),
    "SELECT_V2": Importer("select", _select),
}
