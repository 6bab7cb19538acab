"""HTML for notebooks: the `_repr_html_` of models, sessions and results."""

from collections.abc import Sequence
from functools import partial

from firmwright.base.display_names import format_shape
from firmwright.base.html_fragments import (
    CellValue,
    render_bar,
    render_notebook_item,
)
from firmwright.base.html_views import html_view
from firmwright.flows.board.model_session import ModelSession
from firmwright.flows.measure.profiling import Profile
from firmwright.flows.model.model import Model
from firmwright.flows.model.model_inspection import describe_tensor, inspect_module
from firmwright.flows.verify.verification import Verification

_render = partial(render_notebook_item, "firmwright.notebook")


@html_view.register
def model_html(model: Model) -> str:
    inspection, rows = inspect_module(model.module), []
    for op in inspection.operators:
        inputs = ", ".join(format_shape(tensor.shape) for tensor in op.inputs)
        outputs = ", ".join(format_shape(tensor.shape) for tensor in op.outputs)
        dtypes = ", ".join(sorted({tensor.dtype for tensor in op.outputs}))
        rows.append((op.index, op.kind, inputs, outputs, dtypes, op.macs or None))
    return _render("model.html.j2", model=model, inspection=inspection, rows=rows)


@html_view.register
def verification_html(verification: Verification) -> str:
    return _render("verification.html.j2", result=verification)


@html_view.register
def profile_html(profile: Profile) -> str:
    whole = max(sum(operator.count for operator in profile.operators), 1)
    rows: list[Sequence[CellValue]] = []
    for op in profile.operators:
        cycles = [] if profile.exact is None else [op.modeled_cycles]
        bar = render_bar(op.count / whole)
        rows.append((op.label, op.kind, op.macs or None, op.count, *cycles, bar))
    return _render("profile.html.j2", profile=profile, rows=rows)


@html_view.register
def session_html(session: ModelSession) -> str:
    module = session.compiled.module
    sides = {"inputs": module.io.inputs, "outputs": module.io.outputs}
    tensors = {
        name: [describe_tensor(tensor) for tensor in side]
        for name, side in sides.items()
    }
    return _render(
        "session.html.j2", module=module, board=session.compiled.board.name, **tensors
    )
