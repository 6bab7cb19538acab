"""Loops over vectors in the C of a kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmwright.base.dtypes import INT32
from firmwright.codegen.model_emitter import emit_model
from firmwright.ir.tir.builder import Builder
from firmwright.kernels.mve_loops import HELIUM
from firmwright.passes import BY_NAME
from firmwright.schedules.vector_loops import mark_vector_loops
from firmwright.targets.registry import parse_target


def scaled(factor: str) -> Builder:
    """Return y = x * w[0], where w[0] is in a variable named `factor`."""
    b = Builder("scale_0")
    x = b.buffer_param("x", INT32, (9,), "in")
    y = b.buffer_param("y", INT32, (9,), "out")
    first = b.let(factor, b.load(x, [0]), INT32)
    with b.for_("i", 9) as i:
        b.store(y, [i], b.load(x, [i]) * first)
    b.transform = lambda func: mark_vector_loops(func, HELIUM)
    return b


@pytest.mark.parametrize(
    ("factor", "has_vectors"),
    [("factor", True), ("v", True), *((n, False) for n in ("inside", "v0", "i_end"))],
)
def test_variables_of_a_vector_hide_none_that_it_reads(
    module_of, factor: str, has_vectors: bool
) -> None:
    module = replace(
        module_of(scaled(factor)),
        targets={"cpu": parse_target("cortex-m -mcpu=cortex-m55")},
    )
    text = str(emit_model(BY_NAME["narrow-index"](module), {}).files["model/m.c"])
    assert ("vmulq_n_s32" in text) == has_vectors
