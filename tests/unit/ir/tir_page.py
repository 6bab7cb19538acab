"""The page docs/reference/tir.md, written from the nodes of TIR and the intrinsics."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import get_args

from firmwright.ir import tir
from firmwright.ir.tir import nodes
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.ops.intrinsics import BASE_INTRINSICS

_PAGE = """\
# TIR

The loop level of a [module](fwir.md), written from the nodes in `firmwright.ir.tir.nodes`; a test keeps this page up to date.
A `func` is a kernel, or the program that calls the kernels (`aot_main`). The verifier (`compile --verify-passes`)
checks types, scopes, bounds of every access and that constants are not written; the interpreter executes functions in numpy.

```text
{rules}
```

Operations of `Binary`: {binary}. {extremes}

## Memory

{memory}
## Expressions

{exprs}
## Statements

{stmts}
## Functions

{functions}
## Intrinsics

Functions that programs for every target may call; a call states the type of its result: `rint_f32(x):f32`. They are pure, and in C
`static inline` functions or those of the C library. Targets have others, for their instructions, which only their schedules use.

| intrinsic | result | computes |
| --- | --- | --- |
{intrinsics}
"""


def render_tir_page() -> str:
    """Return the text of docs/reference/tir.md."""
    extremes = _string_below(nodes, "BinaryOp")
    return _PAGE.format(
        rules=inspect.getdoc(nodes),
        binary=", ".join(f"`{op}`" for op in get_args(tir.BinaryOp)),
        extremes=extremes,
        memory=_table(tir.Buffer),
        exprs=_table(*get_args(tir.Expr)),
        stmts=_table(*get_args(tir.Stmt)),
        functions=_table(tir.Param, tir.PrimFunc),
        intrinsics="\n".join(map(_row, BASE_INTRINSICS.values())),
    )


def _string_below(module: object, name: str) -> str:
    """Return the string that documents a name of a module."""
    source = inspect.getsource(module)  # type: ignore[arg-type]  # a module
    after = source.split(f"\n{name}: TypeAlias", 1)[1]
    return " ".join(after.split('"""')[1].split())


def _table(*kinds: type) -> str:
    rows = ["| node | fields | meaning |", "| --- | --- | --- |"]
    for kind in kinds:
        fields = "<br>".join(_field(field) for field in dataclasses.fields(kind))
        meaning = " ".join((inspect.getdoc(kind) or "").split())
        rows.append(f"| `{kind.__name__}` | {fields} | {meaning} |")
    return "\n".join(rows) + "\n"


def _field(field: dataclasses.Field[object]) -> str:
    kind = str(field.type).replace("|", "\\|")
    return f"`{field.name}`: `{kind}`"


def _row(intrinsic: Intrinsic) -> str:
    operands = ", ".join(_operands(intrinsic.operands))
    result = intrinsic.result.short if intrinsic.result else ""
    doc = " ".join(intrinsic.doc.split()).replace("|", "\\|")
    return f"| `{intrinsic.name}({operands})` | {result} | {doc} |"


def _operands(operands: tuple[Operand, ...]) -> Iterator[str]:
    for operand in operands:
        pointer = f"{operand.access} " if operand.kind == "ptr" else ""
        yield f"{pointer}{operand.name}: {operand.dtype.short}"
