"""C of vectorized loops with the vector intrinsics of a target."""

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from firmwright.base.dtypes import INT32, DType
from firmwright.codegen.expr_printer import ExprPrinter
from firmwright.ir import tir
from firmwright.kernels.mve_loops import HELIUM
from firmwright.kernels.rvv_loops import RISCV
from firmwright.kernels.vector_loops import ScalarText, vector_lines
from firmwright.kernels.vector_writer import OWN_NAMES, NotVectorizableError

_TARGETS = (HELIUM, RISCV)


@dataclass(frozen=True, slots=True)
class VectorBounds:
    """The C of a loop's variable, of its first value, and of the end of its values."""

    name: str
    first: str
    end: str


def print_vector_loop(
    loop: tir.For, bounds: VectorBounds, exprs: ExprPrinter, features: AbstractSet[str]
) -> list[str]:
    """Return the lines before the loop of single elements, or none without vectors."""
    target = next((each for each in _TARGETS if each.feature in features), None)
    if target is None or loop.var.dtype != INT32:
        return []

    end = f"{bounds.name}_end"
    taken = re.compile(rf"\b({OWN_NAMES}|{end})\b")

    def outer(text: str) -> str:
        """Return C, which names nothing that the loop has under the same name."""
        if taken.search(text):
            raise NotVectorizableError
        return text

    def number(expr: tir.Expr, dtype: DType) -> str:
        return outer(exprs.as_type(expr, dtype).text)

    def pointer(buffer: tir.Buffer, index: tir.Expr, is_read: bool) -> str:
        if exprs.memory(buffer).unaligned:
            raise NotVectorizableError
        at = tir.AccessPtr(buffer, index, 1, "r" if is_read else "w")
        return outer(exprs.typed_pointer(at, buffer.dtype, const=is_read).text)

    def vector(inside: str) -> list[str]:
        return vector_lines(loop, target, ScalarText(number, pointer), inside)

    extent = loop.extent.value if isinstance(loop.extent, tir.IntImm) else None
    try:
        outer(f"{bounds.first} {bounds.end}")
        lines = target.loop(bounds.name, end, extent, vector)
    except NotVectorizableError:
        return []
    exprs.used.vectors.add(target.feature)
    return [
        f"#if {exprs.names.macro('asm')}_{target.feature.upper()}",
        "{",
        f"    int32_t {bounds.name} = {bounds.first};",
        f"    const int32_t {end} = {bounds.end};",
        *("    " + line for line in lines),
        "}",
        "#else",
    ]
