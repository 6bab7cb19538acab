"""The result of lowering for one call of the graph."""

from typing import NamedTuple

from firmwright.ir.graph.nodes import Call
from firmwright.ops.schedule import LoweringCandidate


class LoweredCall(NamedTuple):
    """A call with its candidates; views, control flow and PrimFunc calls have none."""

    call: Call
    candidates: tuple[LoweringCandidate, ...]
