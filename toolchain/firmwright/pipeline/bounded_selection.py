"""Kernel selection for a module with a bounded axis."""

from collections.abc import Callable, Mapping, Sequence

from firmwright.base.errors import (
    NotSupportedError,
    UnsupportedError,
    UnsupportedItem,
    UsageError,
)
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.graph.attributes.movement import is_subview
from firmwright.ir.module import IRModule
from firmwright.ir.settings import Minimize
from firmwright.lower.bounded_kernels import (
    BoundedKernel,
    BoundedKernels,
    KernelForm,
    SizeClass,
)
from firmwright.lower.bounded_main import bind_axis
from firmwright.lower.kernel_texts import words_of
from firmwright.lower.lowered_call import LoweredCall
from firmwright.lower.lowering import Lowering
from firmwright.lower.resized_graphs import resize_graphs
from firmwright.lower.resized_views import with_common_views
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import LoweringCandidate
from firmwright.pipeline.options import Options

_COMMON_MODULI = (1, 2, 4)
"""Remainders of sizes by these may have kernels of their own."""
_FAST_MODULI = (2, 3, 4, 8, 16)
"""Kernels that compute several rows at once are for multiples of one of these."""
_NARROWER = "narrower bounds, or a fixed size."
_FASTER_PERCENT = 95
"""A second kernel takes at most this share of the time of the one for all sizes."""


def select_bounded(
    axis: BoundedAxis,
    graphs: Mapping[int, IRModule],
    lower: Callable[[IRModule], Lowering],
    select: Callable[[IRModule, Sequence[LoweredCall]], IRModule],
) -> IRModule:
    """Return the module with a kernel for all sizes of its axis for every call.

    `graphs` are the modules of all sizes, `lower` returns the lowering of one, and
    `select` the module with kernels selected from candidates. Raises UnsupportedError
    with the operators of which no kernel suits all sizes.
    """
    modules = with_common_views(graphs, axis)
    lowerings = {size: lower(module) for size, module in modules.items()}
    module = modules[axis.most]
    ops, intrinsics = op_table(), lowerings[axis.most].intrinsics
    try:
        resized = resize_graphs(axis, modules, ops, intrinsics)
    except NotSupportedError as reason:
        what = f"{reason}, so that no program has all sizes of {axis}."
        raise UsageError(what, where=module.name, hint=_NARROWER) from None
    bounded = BoundedKernels(resized, lowerings)
    minimize = module.settings.objective.minimize
    chooser = _Chooser(bounded, minimize)
    offered: list[LoweredCall] = []
    refused: list[UnsupportedItem] = []
    for item in lowerings[axis.most].calls():
        try:
            offered.append(chooser.offer(item))
        except NotSupportedError as reason:
            where = str(item.call.span)
            refused.append(UnsupportedItem(item.call.op, where, str(reason)))
    if refused:
        raise UnsupportedError(refused, where=module.name, hint=_NARROWER)
    return bind_axis(select(module, offered), axis, chooser.kernels)


class _Chooser:
    """Chooses kernels for calls of varying shapes; `kernels` are those chosen."""

    def __init__(self, bounded: BoundedKernels, minimize: Minimize) -> None:
        self.bounded = bounded
        self.minimize = minimize
        self.kernels: dict[str, list[BoundedKernel]] = {}

    def offer(self, item: LoweredCall) -> LoweredCall:
        """Return the call with its candidates, or with the one that suits all sizes."""
        call = item.call
        if is_subview(call.attrs) or self.bounded.graphs.is_fixed(call):
            return item
        if not item.candidates:
            definition = op_table().get(call.op)
            if definition is None or not definition.is_view:
                raise NotSupportedError(f"shapes that depend on {self.bounded.axis}")
            return item
        name = item.candidates[0].function.name
        schedules = [words_of(candidate) for candidate in item.candidates]
        kept = self.bounded.candidates(call, name, schedules)
        for modulus in _COMMON_MODULI:
            for candidate in self._in_order([*item.candidates, *kept]):
                form = KernelForm(words_of(candidate), candidate in kept)
                kernels = self.bounded.cover(name, call, form, modulus)
                if kernels:
                    kernels += self._faster(item, candidate)
                    self.kernels[name] = kernels
                    return LoweredCall(call, (candidate,))
        raise NotSupportedError(f"no kernel for all sizes of {self.bounded.axis}")

    def _in_order(
        self, candidates: Sequence[LoweringCandidate]
    ) -> list[LoweringCandidate]:
        if self.minimize is Minimize.SIZE:
            return sorted(candidates, key=lambda candidate: candidate.image_bytes)
        return sorted(candidates, key=lambda candidate: candidate.time)

    def _faster(
        self, item: LoweredCall, common: LoweringCandidate
    ) -> list[BoundedKernel]:
        """Return a faster kernel for the largest size, and its like, or none.

        It is for the multiples of a number, or for the largest size alone.
        """
        if self.minimize is Minimize.SIZE:
            return []
        for candidate in self._in_order(item.candidates):
            if candidate.time * 100 > common.time * _FASTER_PERCENT:
                break
            form, most = KernelForm(words_of(candidate)), self.bounded.axis.most
            multiples = [SizeClass(n, 0) for n in _FAST_MODULI if not most % n]
            for sizes in (*multiples, SizeClass(0, most)):
                name = f"{candidate.function.name}_for_{sizes.modulus or most}"
                kernel, others = self.bounded.kernel(name, item.call, form, sizes)
                if kernel is not None and not others:
                    return [kernel]
        return []


def check_bounded_options(module: IRModule, options: Options) -> None:
    """Raise UsageError for options that a bounded axis cannot have."""
    settings, io, axis = module.settings, module.io, module.settings.axis
    if axis is None:
        return
    refused = {
        "--stream-input-rows": io.stream_input_rows,
        "--devices": bool(settings.devices.names),
        "--pipeline-runs": settings.pipeline_runs,
        "--recompute": settings.recompute,
        "--compress-weights": settings.objective.has_coded_weights,
        "--weight-independent": settings.weight_independent,
        "--const-pool": any(pool.access == "ro" for pool in module.pools),
        "--no-link-params": not settings.link_params,
        "--emit-step-api": options.emit_step_api,
        "--c-api tvm": options.c_api == "tvm",
        "--tuning": bool(options.tuning.layers),
        "--update-of": options.update_of is not None,
        "--target with a backend": bool(settings.offload) or len(module.targets) > 1,
    }
    found = [option for option, is_set in refused.items() if is_set]
    if found:
        what = f"{found[0]} needs fixed shapes, but {axis} is an axis of several sizes."
        raise UsageError(what, where=module.name, hint="one size in --input-shape.")
