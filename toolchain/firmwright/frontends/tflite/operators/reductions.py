"""Operators that reduce or accumulate along axes."""

from collections.abc import Mapping

from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    Importer,
    bool_options,
    constant_int,
    constant_ints,
    input_rank,
    plain_importer,
)
from firmwright.ir.core import Attrs

_REDUCTIONS = (
    "mean",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "sum",
)


def _reduction_attrs(context: ImportContext) -> Attrs:
    rank = input_rank(context)
    axes = {normalize_axis(axis, rank) for axis in constant_ints(context, 1, "axes")}
    return {"axes": tuple(sorted(axes)), **bool_options(context, "keep_dims")}


def _arg_attrs(context: ImportContext) -> Attrs:
    axis = normalize_axis(constant_int(context, 1, "axes"), input_rank(context))
    return {"axis": axis, "least": context.node.op == "ARG_MIN", "last": False}


def _top_attrs(context: ImportContext) -> Attrs:
    axis = normalize_axis(-1, input_rank(context))
    return {"axis": axis, "k": constant_int(context, 1, "values of k"), "least": False}


def _cumsum_attrs(context: ImportContext) -> Attrs:
    axis = normalize_axis(constant_int(context, 1, "axes"), input_rank(context))
    return {
        "axis": axis,
        "step": "add",
        **bool_options(context, "exclusive", "reverse"),
    }


IMPORTERS: Mapping[str, Importer] = {
    **{name.upper(): plain_importer(name, 2, _reduction_attrs, (0,)) for name in _REDUCTIONS},
    "ARG_MAX": plain_importer("arg_min_max", 2, _arg_attrs, (0,)),
    "ARG_MIN": plain_importer("arg_min_max", 2, _arg_attrs, (0,)),
    "CUMSUM": plain_importer("cumulative", 2, _cumsum_attrs, (0,)),
    "TOPK_V2": plain_importer("top_k", 2, _top_attrs, (0,), outputs=2),
}
