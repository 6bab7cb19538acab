"""Operators that reduce or accumulate along axes."""

from collections.abc import Mapping

from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    Importer,
    bool_option,
    constant_int,
    constant_ints,
    input_rank,
    plain_importer,
)
from firmwright.ir.graph.attributes.values import (
    ArgMinMaxAttrs,
    AxesAttrs,
    CumulativeAttrs,
    TopKAttrs,
)

_REDUCTIONS = (
    "mean",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "sum",
)


def _reduction_attrs(context: ImportContext) -> AxesAttrs:
    rank = input_rank(context)
    axes = {normalize_axis(axis, rank) for axis in constant_ints(context, 1, "axes")}
    keep = bool_option(context, "keep_dims")
    return AxesAttrs(axes=tuple(sorted(axes)), keep_dims=keep)


def _reduction(op: str) -> Importer:
    return plain_importer(op, 2, _reduction_attrs, (0,))


def _arg_attrs(context: ImportContext) -> ArgMinMaxAttrs:
    axis = normalize_axis(constant_int(context, 1, "axes"), input_rank(context))
    return ArgMinMaxAttrs(axis=axis, least=context.node.op == "ARG_MIN", last=False)


def _top_attrs(context: ImportContext) -> TopKAttrs:
    axis = normalize_axis(-1, input_rank(context))
    return TopKAttrs(axis=axis, k=constant_int(context, 1, "values of k"), least=False)


def _cumsum_attrs(context: ImportContext) -> CumulativeAttrs:
    axis = normalize_axis(constant_int(context, 1, "axes"), input_rank(context))
    return CumulativeAttrs(
        axis=axis,
        step="add",
        exclusive=bool_option(context, "exclusive"),
        reverse=bool_option(context, "reverse"),
    )


IMPORTERS: Mapping[str, Importer] = {
    **{name.upper(): _reduction(name) for name in _REDUCTIONS},
    "ARG_MAX": plain_importer("arg_min_max", 2, _arg_attrs, (0,)),
    "ARG_MIN": plain_importer("arg_min_max", 2, _arg_attrs, (0,)),
    "CUMSUM": plain_importer("cumulative", 2, _cumsum_attrs, (0,)),
    "TOPK_V2": plain_importer("top_k", 2, _top_attrs, (0,), outputs=2),
}
