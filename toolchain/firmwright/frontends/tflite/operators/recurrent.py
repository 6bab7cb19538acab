"""Layers with state tensors, which the file marks as variable."""

from collections.abc import Mapping

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    bool_option,
    float_option,
    fused_activation,
    input_type,
)
from firmwright.ir.graph.attributes.recurrent import (
    HybridLstmAttrs,
    LstmAttrs,
    SvdfAttrs,
)

_UNSUPPORTED_POSITIONS = (*range(9, 12), 16, 17, *range(20, 24))
"""Input positions of peephole weights, projection and layer normalization."""

_POSITIONS = (0, *range(1, 9), *range(12, 16), 18, 19)


def _lstm(context: ImportContext) -> ImportedCall:
    options, inputs = context.node.options, context.inputs
    if len(inputs) < 20 or any(inputs[position] is None for position in _POSITIONS):
        raise NotSupportedError("an LSTM without all four gates, biases and state")
    if any(inputs[k] is not None for k in _UNSUPPORTED_POSITIONS if k < len(inputs)):
        raise NotSupportedError(
            "an LSTM with peepholes, a projection or normalized gates"
        )
    if options["fused_activation_function"] != "TANH":
        raise NotSupportedError(
            f"an LSTM activation {options['fused_activation_function']}"
        )
    if options["diagonal_recurrent_tensors"]:
        raise NotSupportedError("an LSTM with diagonal recurrent weights")
    time_major, cell_clip = (
        bool_option(context, "time_major"),
        float_option(context, "cell_clip"),
    )
    if (input_type(context).dtype, input_type(context, 2).dtype) == (FLOAT32, INT8):
        hybrid = HybridLstmAttrs(
            time_major=time_major,
            cell_clip=cell_clip,
            asymmetric=bool_option(context, "asymmetric_quantize_inputs"),
        )
        return ImportedCall("hybrid_lstm", hybrid, _POSITIONS, (18, 19))
    attrs = LstmAttrs(time_major=time_major, cell_clip=cell_clip)
    return ImportedCall("lstm", attrs, _POSITIONS, (18, 19))


def _svdf(context: ImportContext) -> ImportedCall:
    if len(context.inputs) != 5 or any(context.inputs[k] is None for k in (0, 1, 2, 4)):
        raise NotSupportedError("an svdf without all of its inputs")
    if any(len(context.inputs[k].shape) != 2 for k in (0, 1, 2, 4)):  # type: ignore[union-attr]
        raise NotSupportedError("an svdf with inputs that are not matrices")
    rank, options = context.node.options["rank"], context.node.options
    if not isinstance(rank, int) or rank < 1:
        raise NotSupportedError(f"a rank of {rank}")
    if options["fused_activation_function"] in ("TANH", "SIGN_BIT"):
        raise NotSupportedError(
            f"fused activation {options['fused_activation_function']}"
        )
    is_hybrid = (
        input_type(context, 1).dtype == INT8 and input_type(context).dtype == FLOAT32
    )
    attrs = SvdfAttrs(
        rank=rank,
        activation=fused_activation(context),
        asymmetric=bool_option(context, "asymmetric_quantize_inputs")
        if is_hybrid
        else None,
    )
    return ImportedCall("svdf", attrs, (0, 1, 2, 3, 4), (4,))


IMPORTERS: Mapping[str, Importer] = {
    "SVDF": Importer("svdf", _svdf),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Importer("lstm", _lstm),
}
