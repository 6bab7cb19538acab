"""Models of many inputs and outputs build for Helium.

gcc 12 would add the addresses of such models to constant vectors, whose loads it takes
for shorter than they are, so that a branch over them could not be assembled.
"""

from __future__ import annotations

import pytest

from firmwright.artifacts import read_gcc_flags
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.verify.verification import verify
from firmwright.graph_builder import GraphBuilder
from firmwright.pipeline import Compilation

FLAG = "-fno-tree-slp-vectorize"


def copies(outputs: int, board: str) -> Compilation:
    """Compile relus of one input."""
    g = GraphBuilder("many")
    x = g.input("x", (8,), "float32")
    return compile_for(g.model(*(g.call("relu", x) for _ in range(outputs))), board)


def flags_of(compiled: Compilation) -> tuple[str, ...]:
    return read_gcc_flags(str(compiled.tree.files["model/many.c"]))


@pytest.mark.qemu
def test_the_branches_of_map_io_assemble() -> None:
    compiled = copies(23, "mps3-an547")
    assert FLAG in flags_of(compiled)
    assert verify(compiled).exact


@pytest.mark.parametrize(("outputs", "board"), [(2, "mps3-an547"), (23, "mps2-an386")])
def test_few_tensors_or_other_cores_need_no_flag(outputs: int, board: str) -> None:
    assert FLAG not in flags_of(copies(outputs, board))
