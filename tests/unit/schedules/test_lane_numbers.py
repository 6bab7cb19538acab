"""The numbers of lanes on Helium are constants, because gcc 12.2 miscompiles VIDUP.

VIDUP also returns the number after its last lane. If two inlined kernels of a loop have
the same VIDUP, gcc drops the second with that number, but first uses it as a constant.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import firmwright
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.verify.verification import verify
from firmwright.graph_builder import GraphBuilder


def test_no_text_of_a_kernel_has_a_vidup_of_a_constant() -> None:
    files = sorted(Path(firmwright.__file__).parent.rglob("*.c.in"))
    assert files
    assert [file.name for file in files if "vidupq_n" in file.read_text()] == []


@pytest.mark.qemu
def test_a_block_of_rows_and_a_row_of_each_product_are_computed() -> None:
    g = GraphBuilder("products")
    a, b = g.input("a", (2, 5, 7, 1), "float32"), g.input("b", (2, 1, 7, 7), "float32")
    y = g.call(
        "reduction", a, b, formula="a * b", step="add", axes=(2,), keep_dims=False
    )
    compiled = compile_for(g.model(y), "mps3-an547")
    assert "mve_add_products_float32" in repr(compiled.module)
    assert verify(compiled).exact
