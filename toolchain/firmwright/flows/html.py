"""Models, sessions and results as HTML, for notebooks: what their `_repr_html_` give.

In: the values of the flows. Out: HTML fragments. Nothing is computed that the value does not hold.
"""

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
    """Its tensors and operators."""
    found = inspect_module(model.module)
    return render_section(
        f"model {model.name}",
        render_properties(
            (
                ("file", model.file or None),
                ("inputs", _words(found.inputs)),
                ("outputs", _words(found.outputs)),
                ("parameters", f"{found.parameters_bytes:,} bytes"),
                ("multiply-adds", found.macs),
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
                for operator in found.operators
            ],
        ),
    )


def verification_html(found: Verification) -> str:
    """The verdict, and what it rests on."""
    judged = "values equal" if found.exact and not found.is_float else "values within tolerance"
    verdict = (
        f"all {found.values:,} {judged}"
        if found.exact
        else f"{found.mismatches:,} of {found.values:,} values differ"
    )
    first = found.first
    where = None if first is None or found.exact else str(first)
    return render_section(
        f"{'✓' if found.exact else '✗'} {found.model} on {found.board}: {verdict}",
        render_properties(
            (
                ("reference", found.reference),
                ("samples", found.samples),
                ("largest difference", found.max_abs_error),
                ("first difference", where),
                ("first operator that differs", str(found.layer) if found.layer else None),
                ("remark", found.explanation or None),
            )
        ),
    )


def profile_html(found: Profile) -> str:
    """Operators with their shares of the whole."""
    whole = max(sum(operator.count for operator in found.operators), 1)
    modelled = found.exact is not None
    rows: list[Sequence[CellValue]] = [
        (
            operator.name,
            operator.kind,
            operator.macs or None,
            operator.count,
            *([operator.modelled_cycles] if modelled else []),
            render_bar(operator.count / whole),
        )
        for operator in found.operators
    ]
    cycles = ["modelled cycles"] if modelled else []
    return render_section(
        f"{found.model} on {found.board}: {found.total:,} {found.unit}",
        render_properties(
            (
                ("multiply-adds", found.macs),
                *((f"pool {pool.name}", f"{pool.used_bytes:,} bytes") for pool in found.pools),
                (
                    "stack used",
                    None if found.stack_bytes is None else f"{found.stack_bytes:,} bytes",
                ),
                ("runs", found.runs),
            )
        ),
        render_table(("operator", "kind", "MACs", found.unit, *cycles, "share"), rows),
    )


def session_html(session: ModelSession) -> str:
    """What runs where, and what it takes and gives."""
    module = session.compiled.module
    return render_section(
        f"session: {module.name} on {session.compiled.board.name}",
        render_properties((("inputs", _io(module.io.inputs)), ("outputs", _io(module.io.outputs)))),
    )


def _words(tensors: Iterable[ModelTensor]) -> str:
    return "; ".join(f"{t.name}: {t.dtype} {_shape(t.shape)}" for t in tensors)


def _io(tensors: Iterable[IoTensor]) -> str:
    return "; ".join(f"{t.name}: {t.type.dtype.name} {_shape(t.type.shape)}" for t in tensors)


def _shapes(tensors: Iterable[ModelTensor]) -> str:
    return ", ".join(_shape(tensor.shape) for tensor in tensors)


def _shape(shape: Sequence[int]) -> str:
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"
