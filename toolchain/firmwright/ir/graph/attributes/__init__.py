"""The attributes of operators: a class for each family, and the class of each operator.

Families are imported when an operator of theirs is first met. Operators that neither
the table nor an extension names have no attributes.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from firmwright.base.extensions import extensions
from firmwright.ir.core import Attrs
from firmwright.ir.graph.attributes.base import FreeAttrs, OpAttrs, make_attrs

_OPERATORS: Mapping[str, str] = {
    "layers.ActivationAttrs": "add div mul sub",
    "layers.Conv2DAttrs": (
        "conv2d depthwise_conv2d hybrid_conv2d hybrid_depthwise_conv2d"
    ),
    "layers.PoolAttrs": "l2_pool2d max_pool2d",
    "layers.AveragePoolAttrs": "average_pool2d",
    "layers.TransposeConvAttrs": "transpose_conv",
    "layers.FullyConnectedAttrs": "fully_connected variable_fully_connected",
    "layers.HybridFullyConnectedAttrs": "hybrid_fully_connected",
    "layers.ConvNdAttrs": "conv_nd conv_transpose_nd",
    "layers.PoolNdAttrs": "pool_nd",
    "layers.BatchMatmulAttrs": "batch_matmul",
    "layers.HybridBatchMatmulAttrs": "hybrid_batch_matmul",
    "layers.AttentionAttrs": "attention",
    "recurrent.LstmAttrs": "lstm",
    "recurrent.HybridLstmAttrs": "hybrid_lstm",
    "recurrent.SvdfAttrs": "svdf",
    "values.GeluAttrs": "gelu",
    "values.LeakyReluAttrs": "leaky_relu",
    "values.SoftmaxAttrs": "log_softmax softmax",
    "values.L2NormalizationAttrs": "l2_normalization",
    "values.LocalResponseNormalizationAttrs": "local_response_normalization",
    "values.ExpressionAttrs": "expression",
    "values.ReductionAttrs": "reduction",
    "values.AxesAttrs": (
        "mean reduce_all reduce_any reduce_max reduce_min reduce_prod sum"
    ),
    "values.CumulativeAttrs": "cumulative",
    "values.ArgMinMaxAttrs": "arg_min_max",
    "values.TopKAttrs": "top_k",
    "values.UniqueAttrs": "unique_rows",
    "values.OneHotAttrs": "one_hot",
    "values.TableSumAttrs": "table_sum",
    "values.FittedProductAttrs": "fitted_product",
    "movement.AxisAttrs": "concatenation pack unpack",
    "movement.TransposeAttrs": "transpose",
    "movement.StridedSliceAttrs": "strided_slice",
    "movement.SplitAttrs": "split",
    "movement.GatherAttrs": "gather",
    "movement.TileAttrs": "tile",
    "movement.BroadcastAttrs": "broadcast_to",
    "movement.ShapeAttrs": "fill scatter_nd",
    "movement.ReverseAttrs": "reverse_v2",
    "movement.MirrorPadAttrs": "mirror_pad",
    "movement.DepthSpaceAttrs": "depth_to_space space_to_depth",
    "movement.BatchSpaceAttrs": "batch_to_space_nd space_to_batch_nd",
    "movement.ResizeAttrs": "resize_bilinear resize_nearest",
    "movement.ResampleAttrs": "resample",
    "movement.PadAttrs": "pad",
    "movement.ConstantAttrs": "constant",
    "movement.DynamicGatherAttrs": "dynamic_gather",
    "movement.DynamicScatterAttrs": "dynamic_scatter",
    "movement.ReverseSequenceAttrs": "reverse_sequence",
    "sensors.DecimatingAttrs": "biquads fir",
    "sensors.WindowStatisticsAttrs": "window_statistics",
    "sensors.BandPowersAttrs": "band_powers",
    "control.IfAttrs": "if",
    "control.WhileAttrs": "while",
    "control.CustomAttrs": "custom",
}


@cache
def attribute_classes() -> Mapping[str, str]:
    """Return MODULE.CLASS by operator, of this package and of extensions."""
    classes: dict[str, str] = {}
    for name, operators in _OPERATORS.items():
        classes |= dict.fromkeys(operators.split(), f"{__name__}.{name}")
    for extension in extensions():
        for name, operators in extension.attributes.items():
            classes |= dict.fromkeys(operators.split(), name)
    return classes


@cache
def attributes_class(op: str) -> type[OpAttrs]:
    """Return the class of the attributes of `op`; OpAttrs stands for no attributes."""
    if op not in attribute_classes():
        return OpAttrs
    module, _, name = attribute_classes()[op].rpartition(".")
    found: type[OpAttrs] = getattr(import_module(module), name)
    return found


def attrs_from_mapping(op: str, values: Attrs) -> OpAttrs:
    """Return the attributes of `op` from text; raise ModelError if they do not fit.

    Those of operators without attributes are kept as they are; the verifier reports
    them.
    """
    if values and op not in attribute_classes():
        return FreeAttrs(pairs=tuple(values.items()))
    return make_attrs(op, attributes_class(op), values)
