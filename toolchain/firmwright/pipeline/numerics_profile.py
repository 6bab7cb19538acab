"""Choice of the numerics profile: the runtime that defines a model's results."""

import logging
from collections.abc import Iterator

from firmwright.base.errors import UsageError
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.ops.registry import op_table

log = logging.getLogger(__name__)


def choose_profile(model: IRModule, requested: NumericsProfile) -> NumericsProfile:
    """Return the profile of a model, which is `onnx` for ONNX and PyTorch.

    A .tflite model asks for `litert` unless the user says otherwise. If LiteRT's
    reference kernels do not define the result of one of its operators, and TFLM has all
    of them, the profile is `tflm`. Raises UsageError for a profile of other models.
    """
    if model.settings.numerics == "onnx":
        if requested in ("litert", "onnx"):
            return "onnx"
        what = f"--numerics {requested} does not apply to this model."
        raise UsageError(
            what, hint="leave it out: ONNX Runtime or PyTorch defines the results."
        )
    if requested == "onnx":
        what = "--numerics onnx applies to ONNX models and PyTorch programs only."
        raise UsageError(what, hint="use litert or tflm.")
    if requested != "litert":
        return requested
    gap = next(_litert_gaps(model), None)
    if gap is None or not _is_defined_by_tflm(model):
        return requested
    call, reason = gap
    log.warning(
        "%s: %s. The results are those of TFLM, as with --numerics tflm.",
        call.span,
        reason,
    )
    return "tflm"


def _litert_gaps(model: IRModule) -> Iterator[tuple[Call, str]]:
    """Yield the calls that LiteRT's reference kernels do not define, and why."""
    for call in _calls(model):
        opdef = op_table().get(call.op)
        reason = "" if opdef is None else opdef.litert_gap(make_op_call(call, model))
        if reason:
            yield call, reason


def _is_defined_by_tflm(model: IRModule) -> bool:
    for call in _calls(model):
        opdef = op_table().get(call.op)
        if opdef is not None and "tflm" not in opdef.profiles:
            return False
    return True


def _calls(model: IRModule) -> Iterator[Call]:
    for graph in model.graphs:
        yield from graph.body
