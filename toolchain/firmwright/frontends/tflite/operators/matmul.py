"""Fully connected layers and matrix products, hybrid for floats and int8 weights."""

from collections.abc import Mapping

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT64
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    bool_option,
    check_bias_type,
    fused_activation,
    input_type,
    require_tensors,
)
from firmwright.ir.graph.attributes.layers import (
    BatchMatmulAttrs,
    FullyConnectedAttrs,
    HybridBatchMatmulAttrs,
    HybridFullyConnectedAttrs,
)
from firmwright.ir.graph.attributes.movement import ShapeAttrs


def _fully_connected(context: ImportContext) -> ImportedCall:
    require_tensors(context, 2)
    options = context.node.options
    if options["weights_format"] != "DEFAULT":
        raise NotSupportedError(f"weights format {options['weights_format']}")
    activation = fused_activation(context)
    keep_dims = bool_option(context, "keep_num_dims")
    positions = tuple(range(len(context.inputs)))
    check_bias_type(context, input_type(context), 2)
    if _is_zero(context):
        shape = _result_shape(context, keep_dims=keep_dims)
        return ImportedCall("fill", ShapeAttrs(shape=shape), ())
    if (input_type(context).dtype, input_type(context, 1).dtype) == (FLOAT32, INT8):
        hybrid = HybridFullyConnectedAttrs(
            activation=activation,
            keep_dims=keep_dims,
            asymmetric=bool(options.get("asymmetric_quantize_inputs", False)),
        )
        return ImportedCall("hybrid_fully_connected", hybrid, positions)
    is_constant = True
    operands = list(zip(context.inputs, context.constants, strict=True))
    for kind, constant in operands[1:3]:
        if kind is not None and constant is None:
            is_constant = False
    if input_type(context, 1).dtype == INT16:
        _check_long_bias(context)
        is_constant = False  # kernels with constant weights take those of int8
    op = "fully_connected" if is_constant else "variable_fully_connected"
    attrs = FullyConnectedAttrs(activation=activation, keep_dims=keep_dims)
    return ImportedCall(op, attrs, positions)


def _is_zero(context: ImportContext) -> bool:
    """Whether x is int16 without a scale, as FILL gives the first state of a loop.

    Runtimes read scale 0, by which they multiply the sums.
    """
    x, y = input_type(context), context.outputs[0]
    is_symmetric = y.quantization is not None and y.quantization.zero_points == (0,)
    is_int16 = x.dtype == y.dtype == INT16
    return is_int16 and x.quantization is None and is_symmetric


def _result_shape(context: ImportContext, *, keep_dims: bool) -> tuple[int, ...]:
    x, w = input_type(context), input_type(context, 1)
    if len(w.shape) != 2 or not w.shape[1] or x.elements % w.shape[1]:
        raise NotSupportedError(f"weights {list(w.shape)} for {list(x.shape)}")
    outputs, inputs = w.shape
    if keep_dims:
        return (*x.shape[:-1], outputs)
    return (x.elements // inputs, outputs)


def _check_long_bias(context: ImportContext) -> None:
    """Refuse a 64-bit bias that the options do not state: LiteRT reads 32 bits."""
    bias = context.inputs[2] if len(context.inputs) > 2 else None
    is_stated = context.node.options["quantized_bias_type"] == "int64"
    if bias is not None and bias.dtype == INT64 and not is_stated:
        raise NotSupportedError(
            "weights of int16 with a 64-bit bias, but without quantized_bias_type="
            "INT64 in its options"
        )


def _batch_matmul(context: ImportContext) -> ImportedCall:
    require_tensors(context, 2)
    adj_x = bool_option(context, "adj_x")
    adj_y = bool_option(context, "adj_y")
    if (input_type(context).dtype, input_type(context, 1).dtype) == (FLOAT32, INT8):
        asymmetric = bool_option(context, "asymmetric_quantize_inputs")
        hybrid = HybridBatchMatmulAttrs(adj_x=adj_x, adj_y=adj_y, asymmetric=asymmetric)
        return ImportedCall("hybrid_batch_matmul", hybrid, (0, 1))
    attrs = BatchMatmulAttrs(adj_x=adj_x, adj_y=adj_y)
    return ImportedCall("batch_matmul", attrs, (0, 1))


IMPORTERS: Mapping[str, Importer] = {
    "BATCH_MATMUL": Importer("batch_matmul", _batch_matmul),
    "FULLY_CONNECTED": Importer("fully_connected", _fully_connected),
}
