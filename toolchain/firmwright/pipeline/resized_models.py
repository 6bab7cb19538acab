"""A model at every size of a bounded axis, with the size as one more input.

Frontends and graph passes see each size as a model with fixed shapes. All sizes get the
same calls: the axis is an input of the model, and each output of varying length is
followed by an output with its length, as for lengths that depend on the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from firmwright.base.counted_outputs import count_name
from firmwright.base.dtypes import INT32
from firmwright.base.errors import UsageError
from firmwright.base.size_formula import SizeFormula, fit_size_formula
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.nodes import Call, TensorType, Value
from firmwright.ir.module import IRModule

_SIZE_TYPE = TensorType((), INT32)


@dataclass(frozen=True, slots=True)
class ResizedModel:
    """A model at one size of its bounded axis, with the bytes of its model file."""

    module: IRModule
    source: bytes | None = None


def with_axis_input(
    models: Mapping[int, ResizedModel], axis: BoundedAxis
) -> dict[int, ResizedModel]:
    """Return the models by size with the input of the axis, and lengths of outputs.

    Raises UsageError if the model has tensors of these names, or an output whose length
    is no formula of the size.
    """
    graph = models[axis.most].module.entry_graph
    names = [value.name for value in graph.values]
    size = Value(axis.name, _SIZE_TYPE)
    added: list[Call] = []
    for index, result in enumerate(graph.results):
        shapes: dict[int, tuple[int, ...]] = {}
        for n, model in models.items():
            shapes[n] = model.module.entry_graph.results[index].shape
        formula = _length(shapes, result.name)
        if formula is not None:
            attrs = ExpressionAttrs(formula=_text(formula))
            count = Value(count_name(result.name), _SIZE_TYPE)
            added.append(Call("expression", (size,), (count,), attrs))
    counts = tuple(call.outputs[0] for call in added)
    for value in (size, *counts):
        if value.name in names:
            what = f"the model has a tensor {value.name!r} already."
            raise UsageError(what, hint="give the axis another name: NAME:1..128.")
    resized: dict[int, ResizedModel] = {}
    for n, model in models.items():
        entry = model.module.entry_graph
        entry = replace(
            entry,
            params=(*entry.params, size),
            body=(*entry.body, *added),
            results=(*entry.results, *counts),
        )
        settings = replace(model.module.settings, axis=axis)
        module = replace(model.module.with_function(entry), settings=settings)
        resized[n] = replace(model, module=module)
    return resized


def _length(shapes: Mapping[int, tuple[int, ...]], name: str) -> SizeFormula | None:
    """Return the formula of the one axis that varies; None if no or several do."""
    ranks = {len(shape) for shape in shapes.values()}
    if len(ranks) > 1:
        raise UsageError(f"the output {name} has several numbers of axes.")
    varying: list[dict[int, int]] = []
    for axis in range(ranks.pop()):
        lengths = {n: shape[axis] for n, shape in shapes.items()}
        if len(set(lengths.values())) > 1:
            varying.append(lengths)
    if len(varying) != 1:
        return None
    formula = fit_size_formula(varying[0])
    if formula is None or formula.square:
        what = f"the length of the output {name} is no formula of the size of the axis."
        raise UsageError(what, hint="use smaller bounds.")
    return formula


def _text(formula: SizeFormula) -> str:
    text = "a" if formula.factor == 1 else f"a * int32({formula.factor})"
    if formula.offset:
        operator = "+" if formula.offset > 0 else "-"
        text = f"{text} {operator} int32({abs(formula.offset)})"
    if formula.divisor > 1:
        text = f"({text}) / int32({formula.divisor})"
    return text
