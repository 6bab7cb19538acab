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
    extras = [inputs[k] for k in _UNSUPPORTED_POSITIONS if k < len(inputs)]
    if any(item is not None for item in extras):
        raise NotSupportedError(
            "an LSTM with peepholes, a projection or normalized gates"
        )
    if options["fused_activation_function"] != "TANH":
        raise NotSupportedError(
            f"an LSTM activation {options['fused_activation_function']}"
        )
    if options["diagonal_recurrent_tensors"]:
        raise NotSupportedError("an LSTM with diagonal recurrent weights")
    time_major = bool_option(context, "time_major")
    cell_clip = float_option(context, "cell_clip")
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
    required = (0, 1, 2, 4)  # all but the bias
    if len(context.inputs) != 5 or any(context.inputs[k] is None for k in required):
        raise NotSupportedError("an svdf without all of its inputs")
    if any(len(input_type(context, k).shape) != 2 for k in required):
        raise NotSupportedError("an svdf with inputs that are not matrices")
    rank = context.node.options["rank"]
    options = context.node.options
    if not isinstance(rank, int) or rank < 1:
        raise NotSupportedError(f"a rank of {rank}")
    if options["fused_activation_function"] in ("TANH", "SIGN_BIT"):
        raise NotSupportedError(
            f"fused activation {options['fused_activation_function']}"
        )
    activation = fused_activation(context)
    asymmetric: bool | None = None
    if (input_type(context).dtype, input_type(context, 1).dtype) == (FLOAT32, INT8):
        asymmetric = bool_option(context, "asymmetric_quantize_inputs")
    attrs = SvdfAttrs(rank=rank, activation=activation, asymmetric=asymmetric)
    return ImportedCall("svdf", attrs, (0, 1, 2, 3, 4), (4,))


IMPORTERS: Mapping[str, Importer] = {
    "SVDF": Importer("svdf", _svdf),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Importer("lstm", _lstm),
}
