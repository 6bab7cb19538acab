"""What the importers of models take apart: control flow, variables, compressed constants.

    if: runs the function `then` or `else`, as input 0 says, on the other inputs.
    while: runs `body` on what it carries as long as `cond` says so.

They run graph functions of the module, so they have neither loops nor a reference of their own:
`ir/graph/evaluate.py` runs them, `select/control_flow.py` writes them into the AOT main. Variables
are no
calls at all: the importer follows what is assigned to what is read; nor is what decodes constants,
which is done while the model is imported. Source of the semantics: TFLite's operators of these
names, and TFLM's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firmwright.base.errors import InternalError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    ConformanceCase,
    ImportContext,
    ImportedCall,
    OpCall,
    OpDef,
)
from firmwright.ops.kernel import Kernel


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    return call.outputs


def _reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    raise InternalError(f"{call.op} is run with the functions of its module")


def _lower(call: OpCall, b: Kernel) -> None:
    raise InternalError(f"{call.op} is no kernel")


def _import(context: ImportContext) -> ImportedCall:
    raise InternalError(f"{context.node.op} is imported with its module")


def _no_cases() -> Iterator[ConformanceCase]:
    return iter(())


def _record(name: str, *foreign: str, restrictions: str = "") -> OpDef:
    return OpDef(
        name=name,
        infer=_infer,
        reference=_reference,
        lower=_lower,
        imports={f"tflite:{item}": _import for item in foreign},
        cases=_no_cases,
        dtypes=("int8", "int16", "int32", "float32", "bool"),
        restrictions=restrictions,
    )


OPDEFS = (
    _record("if", "IF"),
    _record("while", "WHILE"),
    _record("variable", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"),
    _record(
        "decoded",
        "custom:TFLM_DECODE",
        restrictions="while a model is read: look-up tables, Huffman codes, pruned tensors",
    ),
)
