"""HTML for notebooks: the `_repr_html_` of models, sessions and results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from firmwright.base.html_fragments import (
    CellValue,
    render_bar,
    render_properties,
    render_section,
    render_table,
)
from firmwright.flows.model_inspection import ModelTensor, inspect_module

if TYPE_CHECKING:
    from firmwright.flows.model import Model
    from firmwright.flows.model_session import ModelSession
    from firmwright.flows.profiling import Profile
    from firmwright.flows.verification import Verification
    from firmwright.ir.module import IoTensor


def model_html(model: Model) -> str:
    inspection = inspect_module(model.module)
    return render_section(
        f"model {model.name}",
        render_properties(
            (
                ("file", model.file or None),
                ("inputs", _format_tensors(inspection.inputs)),
                ("outputs", _format_tensors(inspection.outputs)),
                ("parameters", f"{inspection.parameters_bytes:,} bytes"),
                ("multiply-adds", inspection.macs),
            )
        ),
        render_table(
            ("", "operator", "in", "out", "dtype", "MACs"),
            [
                (
                    operator.index,
                    operator.kind,
                    _shapes(operator.inputs),
                    _shapes(operator.outputs),
                    ", ".join(sorted({tensor.dtype for tensor in operator.outputs})),
                    operator.macs or None,
                )
                for operator in inspection.operators
            ],
        ),
    )


def verification_html(verification: Verification) -> str:
    judged = (
        "values equal"
        if verification.exact and not verification.is_float
        else "values within tolerance"
    )
    verdict = (
        f"all {verification.values:,} {judged}"
        if verification.exact
        else f"{verification.mismatches:,} of {verification.values:,} values differ"
    )
    first = verification.first
    where = None if first is None or verification.exact else str(first)
    return render_section(
        f"{'✓' if verification.exact else '✗'} {verification.model} on {verification.board}: "
        f"{verdict}",
        render_properties(
            (
                ("reference", verification.reference),
                ("samples", verification.samples),
                ("largest difference", verification.max_abs_error),
                ("first difference", where),
                (
                    "first operator that differs",
                    str(verification.layer) if verification.layer else None,
                ),
                ("remark", verification.explanation or None),
            )
        ),
    )


def profile_html(profile: Profile) -> str:
    whole = max(sum(operator.count for operator in profile.operators), 1)
    is_exact = profile.exact is not None
    rows: list[Sequence[CellValue]] = [
        (
            operator.name,
            operator.kind,
            operator.macs or None,
            operator.count,
            *([operator.modelled_cycles] if is_exact else []),
            render_bar(operator.count / whole),
        )
        for operator in profile.operators
    ]
    cycles = ["modeled cycles"] if is_exact else []
    return render_section(
        f"{profile.model} on {profile.board}: {profile.total:,} {profile.unit}",
        render_properties(
            (
                ("multiply-adds", profile.macs),
                *((f"pool {pool.name}", f"{pool.used_bytes:,} bytes") for pool in profile.pools),
                (
                    "stack used",
                    None if profile.stack_bytes is None else f"{profile.stack_bytes:,} bytes",
                ),
                ("runs", profile.runs),
            )
        ),
        render_table(("operator", "kind", "MACs", profile.unit, *cycles, "share"), rows),
    )


def session_html(session: ModelSession) -> str:
    module = session.compiled.module
    return render_section(
        f"session: {module.name} on {session.compiled.board.name}",
        render_properties(
            (("inputs", _format_io(module.io.inputs)), ("outputs", _format_io(module.io.outputs)))
        ),
    )


def _format_tensors(tensors: Iterable[ModelTensor]) -> str:
    return "; ".join(f"{t.name}: {t.dtype} {_shape(t.shape)}" for t in tensors)


def _format_io(tensors: Iterable[IoTensor]) -> str:
    return "; ".join(f"{t.name}: {t.type.dtype.name} {_shape(t.type.shape)}" for t in tensors)


def _shapes(tensors: Iterable[ModelTensor]) -> str:
    return ", ".join(_shape(tensor.shape) for tensor in tensors)


def _shape(shape: Sequence[int]) -> str:
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"
