"""The model that a verb reads, from the arguments."""

import argparse

from firmwright.base.errors import UsageError
from firmwright.frontends.onnx import BoundedShapes, ModelOverrides
from firmwright.ir.bounded_axis import BoundedAxis


def fixed_shapes(args: argparse.Namespace, verb: str) -> ModelOverrides:
    """Return the shapes and constants for a verb that needs one size of each axis."""
    overrides = model_overrides(args)
    if overrides.bounded is not None:
        what = f"{verb} needs fixed shapes, not {overrides.bounded.axis}."
        raise UsageError(what, hint="one size in --input-shape.")
    return overrides


def model_overrides(args: argparse.Namespace) -> ModelOverrides:
    """Return the shapes and constants; raise UsageError for several bounded axes."""
    shapes: dict[str, tuple[int, ...]] = {}
    places: dict[str, tuple[int, ...]] = {}
    axes: set[BoundedAxis] = set()
    for name, given in args.input_shape:
        sizes: list[int] = []
        for size in given:
            sizes.append(size.most if isinstance(size, BoundedAxis) else size)
        shapes[name] = tuple(sizes)
        own = [k for k, size in enumerate(given) if isinstance(size, BoundedAxis)]
        axes.update(given[place] for place in own)
        if own:
            places[name] = tuple(own)
    if len(axes) > 1:
        listed = " and ".join(sorted(map(str, axes)))
        what = f"a model can have one axis of several sizes, not {listed}."
        raise UsageError(what, hint="the same range wherever the size is the same.")
    bounded = BoundedShapes(axes.pop(), places) if axes else None
    bindings = dict(getattr(args, "fix_input", ()))
    return ModelOverrides(shapes, bindings, bounded)
