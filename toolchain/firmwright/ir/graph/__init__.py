"""The operator level of the IR (Relay in TVM): typed values, calls and operator definitions."""

from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    ImplicitState,
    ImportContext,
    ImportedCall,
    OpCall,
    OpDef,
    RowWindow,
)

__all__ = [
    "ImplicitState",
    "ImportContext",
    "ImportedCall",
    "OpCall",
    "OpDef",
    "RowWindow",
    "TensorType",
]
