"""The operator level of the IR (Relay in TVM): values, calls, operator definitions."""

from firmwright.ir.graph.nodes import *  # noqa: F403  # the package is the namespace of its nodes
from firmwright.ir.graph.op_call import *  # noqa: F403  # and of calls of operators
