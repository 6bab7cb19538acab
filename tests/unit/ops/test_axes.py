"""Axes in the IR count from 0: importers have resolved the negative ones of files.

tests/ops compares negative axes of files (`PACK axis=-1`) with LiteRT.
"""

import pytest

from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.verify import diagnose_graph
from firmwright.ir.printer import parse_module
from firmwright.ops.registry import op_table

WRONG = {
    "%y: i8[2,2,3] = pack(%x, %x) {axis=-1}": "axis -1 of 3 dimensions",
    "%y: i8[2,2,3] = pack(%x, %x) {axis=3}": "axis 3 of 3 dimensions",
    "%y: i8[2,3] = split(%x) {axis=-1, sizes=[3]}": "axis -1 of 2 dimensions",
    "%y: i8[2,9] = split(%x) {axis=1, sizes=[9]}": "3 elements split into [9]",
    "%y: i8[3] = unpack(%x) {axis=-2}": "axis -2 of 2 dimensions",
    "%y: i8[2,3,1] = gather(%x) {axis=-1, indices=[0], shape=[1]}": "axis -1 of 2",
    "%y: i8[1,3] = gather(%x) {axis=0, indices=[9], shape=[1]}": "[1] indices of 2",
    "%y: i8[4,3] = gather(%x) {axis=0, indices=[0], shape=[4]}": "[4] indices of 2",
    "%y: i8[2,2] = transpose(%x) {perm=[0,0]}": "[0, 0] are not the axes of 2",
    "%y: i8[3,2] = transpose(%x) {perm=[-1,0]}": "[-1, 0] are not the axes of 2",
    "%y: i8[2,6] = concatenation(%x, %x) {axis=-1}": "axis -1 of 2 dimensions",
}
RIGHT = (
    "%y: i8[2,3,2] = pack(%x, %x) {axis=2}",
    "%y: i8[2,3] = split(%x) {axis=1, sizes=[3]}",
    "%y: i8[3,3] = gather(%x) {axis=0, indices=[0, 1, 0], shape=[3]}",
    "%y: i8[3,2] = transpose(%x) {perm=[1,0]}",
    "%y: i8[2,6] = concatenation(%x, %x) {axis=1}",
)


def diagnostics(call: str) -> list[str]:
    text = f"graph @main(%x: i8[2,3]) -> (%y) attrs {{entry=true}} {{ {call} }}"
    module = parse_module(text, fragment=True)
    main = module.functions["main"]
    assert isinstance(main, Function)
    return diagnose_graph(main, module, op_table())


@pytest.mark.parametrize(("call", "problem"), WRONG.items())
def test_a_call_with_an_axis_that_does_not_exist_is_refused(
    call: str, problem: str
) -> None:
    (found,) = diagnostics(call)
    assert problem in found


@pytest.mark.parametrize("call", RIGHT)
def test_axes_that_exist_are_accepted(call: str) -> None:
    assert diagnostics(call) == []
