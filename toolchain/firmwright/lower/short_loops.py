"""Calls that are offered loops with less unrolling, too."""

from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ir.settings import Minimize
from firmwright.ops.opdef import OpTable

_SMALL_PERCENT = 8
"""Maximum share of the model's multiplications in a small layer."""


def calls_with_short_loops(module: IRModule, ops: OpTable) -> frozenset[str]:
    """Return the first outputs of the calls in which code may matter more than time.

    For the goal `size` these are all; for `balanced` the calls that multiply little,
    where short loops hardly take time of the model.
    """
    goal, body = module.settings.objective.minimize, module.entry_graph.body
    if goal is Minimize.SIZE:
        return frozenset(call.outputs[0].name for call in body)
    if goal is not Minimize.BALANCED:
        return frozenset()
    counts = {call.outputs[0].name: _count_macs(call, module, ops) for call in body}
    most = _SMALL_PERCENT * sum(counts.values())
    return frozenset(name for name, count in counts.items() if 100 * count <= most)


def _count_macs(call: Call, module: IRModule, ops: OpTable) -> int:
    """Return the multiplications of a call; 0 if it runs a function."""
    if call.op not in ops:
        return 0
    return ops[call.op].macs(make_op_call(call, module))
