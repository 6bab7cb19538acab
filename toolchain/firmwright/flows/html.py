"""HTML for notebooks: the `_repr_html_` of models, sessions and results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from firmwright.base import html_fragments
from firmwright.flows.model_inspection import ModelTensor, describe_tensor, inspect_module

if TYPE_CHECKING:
    from firmwright.flows.model import Model
    from firmwright.flows.model_session import ModelSession
    from firmwright.flows.profiling import Profile
    from firmwright.flows.verification import Verification


def model_html(model: Model) -> str:
    inspection = inspect_module(model.module)
    properties = (
        ("file", model.file or None),
        ("inputs", _format_tensors(inspection.inputs)),
        ("outputs", _format_tensors(inspection.outputs)),
        ("parameters", f"{inspection.parameters_bytes:,} bytes"),
        ("multiply-adds", inspection.macs),
    )
    rows = []
    for op in inspection.operators:
        shapes = (", ".join(_shape(t.shape) for t in side) for side in (op.inputs, op.outputs))
        dtypes = ", ".join(sorted({tensor.dtype for tensor in op.outputs}))
        rows.append((op.index, op.kind, *shapes, dtypes, op.macs or None))
    table = html_fragments.render_table(("", "operator", "in", "out", "dtype", "MACs"), rows)
    title = f"model {model.name}"
    return html_fragments.render_section(title, html_fragments.render_properties(properties), table)


def verification_html(verification: Verification) -> str:
    verdict = f"{verification.mismatches:,} of {verification.values:,} values differ"
    if verification.exact:
        judged = "within tolerance" if verification.is_float else "equal"
        verdict = f"all {verification.values:,} values {judged}"
    first, layer = verification.first, verification.layer
    properties: tuple[tuple[str, html_fragments.CellValue], ...] = (
        ("reference", verification.reference),
        ("samples", verification.samples),
        ("largest difference", verification.max_abs_error),
        ("first difference", None if first is None or verification.exact else str(first)),
        ("first operator that differs", str(layer) if layer else None),
        ("remark", verification.explanation or None),
    )
    mark = "✓" if verification.exact else "✗"
    title = f"{mark} {verification.model} on {verification.board}: {verdict}"
    return html_fragments.render_section(title, html_fragments.render_properties(properties))


def profile_html(profile: Profile) -> str:
    whole = max(sum(operator.count for operator in profile.operators), 1)
    is_exact = profile.exact is not None
    rows: list[Sequence[html_fragments.CellValue]] = []
    for op in profile.operators:
        cycles = [op.modeled_cycles] if is_exact else []
        bar = html_fragments.render_bar(op.count / whole)
        rows.append((op.name, op.kind, op.macs or None, op.count, *cycles, bar))
    extra = ["modeled cycles"] if is_exact else []
    stack = None if profile.stack_bytes is None else f"{profile.stack_bytes:,} bytes"
    properties: list[tuple[str, html_fragments.CellValue]] = [
        ("multiply-adds", profile.macs),
        *((f"pool {pool.name}", f"{pool.used_bytes:,} bytes") for pool in profile.pools),
        ("stack used", stack),
        ("modeled cycles", profile.exact.describe_cycles() if profile.exact else None),
        ("runs", profile.runs),
    ]
    return html_fragments.render_section(
        f"{profile.model} on {profile.board}: {profile.total:,} {profile.unit}",
        html_fragments.render_properties(properties),
        html_fragments.render_table(
            ("operator", "kind", "MACs", profile.unit, *extra, "share"), rows
        ),
    )


def session_html(session: ModelSession) -> str:
    module = session.compiled.module
    sides = (("inputs", module.io.inputs), ("outputs", module.io.outputs))
    properties = [(name, _format_tensors(map(describe_tensor, side))) for name, side in sides]
    title = f"session: {module.name} on {session.compiled.board.name}"
    return html_fragments.render_section(title, html_fragments.render_properties(properties))


def _format_tensors(tensors: Iterable[ModelTensor]) -> str:
    return "; ".join(f"{t.name}: {t.dtype} {_shape(t.shape)}" for t in tensors)


def _shape(shape: Sequence[int]) -> str:
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"
