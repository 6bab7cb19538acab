"""Operators that read or write at indices."""

from collections.abc import Mapping

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    ImportedCall,
    Importer,
    constant_int,
    constant_ints,
    input_rank,
    input_type,
    plain_importer,
    require_tensors,
)
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.attributes.movement import (
    ConstantAttrs,
    DynamicGatherAttrs,
    GatherAttrs,
    ReverseSequenceAttrs,
    ShapeAttrs,
)
from firmwright.ir.graph.attributes.values import OneHotAttrs


def _gather(context: ImportContext) -> ImportedCall:
    """Import constant indices as attributes; other gathers become dynamic_gather."""
    require_tensors(context, 2)
    x, indices = input_type(context), input_type(context, 1)
    axis = normalize_axis(context.node.options["axis"], len(x.shape))
    batch = context.node.options["batch_dims"]
    if context.constants[1] is None or batch:
        dims = normalize_axis(batch, len(indices.shape) + 1)
        attrs = DynamicGatherAttrs(mode="along", axis=axis, batch_dims=dims)
        return ImportedCall("dynamic_gather", attrs, (0, 1))
    values = constant_ints(context, 1, "indices")
    if not all(0 <= index < x.shape[axis] for index in values):
        raise NotSupportedError("indices outside of the input")
    if not values:
        empty = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return ImportedCall("constant", ConstantAttrs(values=(), shape=empty), ())
    constant = GatherAttrs(axis=axis, indices=values, shape=indices.shape)
    return ImportedCall("gather", constant, (0,))


def _embedding_lookup(context: ImportContext) -> ImportedCall:
    require_tensors(context, 2)
    if (input_type(context, 1).dtype, context.outputs[0].dtype) == (INT8, FLOAT32):
        return ImportedCall("hybrid_embedding_lookup", NO_ATTRS, (0, 1))
    attrs = DynamicGatherAttrs(mode="along", axis=0)
    return ImportedCall("dynamic_gather", attrs, (1, 0))


def _one_hot_attrs(context: ImportContext) -> OneHotAttrs:
    axis = normalize_axis(context.node.options["axis"], input_rank(context) + 1)
    return OneHotAttrs(axis=axis, depth=constant_int(context, 1, "depths"))


def _reverse_sequence_attrs(context: ImportContext) -> ReverseSequenceAttrs:
    rank, options = input_rank(context), context.node.options
    return ReverseSequenceAttrs(
        batch_dim=normalize_axis(options["batch_dim"], rank),
        seq_dim=normalize_axis(options["seq_dim"], rank),
    )


def _scatter_attrs(context: ImportContext) -> ShapeAttrs:
    return ShapeAttrs(shape=constant_ints(context, 2, "shapes"))


IMPORTERS: Mapping[str, Importer] = {
    "DYNAMIC_UPDATE_SLICE": plain_importer("dynamic_update_slice", 3),
    "EMBEDDING_LOOKUP": Importer("dynamic_gather", _embedding_lookup),
    "GATHER": Importer("gather", _gather),
    "GATHER_ND": plain_importer(
        "dynamic_gather",
        2,
        lambda context: DynamicGatherAttrs(mode="slices", batch_dims=0),
    ),
    "ONE_HOT": plain_importer("one_hot", 4, _one_hot_attrs, (0, 2, 3)),
    "REVERSE_SEQUENCE": plain_importer("reverse_sequence", 2, _reverse_sequence_attrs),
    "SCATTER_ND": plain_importer("scatter_nd", 3, _scatter_attrs, (0, 1)),
}
