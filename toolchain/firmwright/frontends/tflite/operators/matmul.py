"""Fully connected layers and matrix products, hybrid for floats and int8 weights."""

from collections.abc import Mapping

from firmwright.base.dtypes import FLOAT32, INT8
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


def _fully_connected(context: ImportContext) -> ImportedCall:
    require_tensors(context, 2)
    options = context.node.options
    if options["weights_format"] != "DEFAULT":
        raise NotSupportedError(f"weights format {options['weights_format']}")
    activation = fused_activation(context)
    keep_dims = bool_option(context, "keep_num_dims")
    positions = tuple(range(len(context.inputs)))
    check_bias_type(context, input_type(context), 2)
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
    op = "fully_connected" if is_constant else "variable_fully_connected"
    attrs = FullyConnectedAttrs(activation=activation, keep_dims=keep_dims)
    return ImportedCall(op, attrs, positions)


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
