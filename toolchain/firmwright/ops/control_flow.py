"""Operators without kernels: control flow, variables and compressed constants.

if runs function `then` or `else`, selected by input 0, on the other inputs; while runs `body` on
the loop-carried values while `cond` is true. `ir/graph/evaluate.py` executes both, and
`select/main_control_flow.py` inlines them into the AOT main. The importer resolves variables to
state and decodes constants.
Semantics: TFLite's and TFLM's operators of these names.
"""

from collections.abc import Sequence

from firmwright.base.dtypes import Array
from firmwright.base.errors import InternalError
from firmwright.ir.graph import ImportContext, ImportedCall, OpCall, OpDef
from firmwright.ops.kernel import Kernel


def _reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    raise InternalError(f"{call.op} has no reference of its own: evaluate the module")


def _lower(call: OpCall, b: Kernel) -> None:
    raise InternalError(f"{call.op} has no kernel")


def _import(context: ImportContext) -> ImportedCall:
    raise InternalError(f"{context.node.op} has no importer of its own")


def _record(name: str, *foreign: str, restrictions: str = "") -> OpDef:
    return OpDef(
        name=name,
        infer=lambda call: call.outputs,
        reference=_reference,
        lower=_lower,
        imports={f"tflite:{item}": _import for item in foreign},
        dtypes=("int8", "int16", "int32", "float32", "bool"),
        restrictions=restrictions,
        numerics="neither",
    )


OPDEFS = (
    _record("if", "IF"),
    _record("while", "WHILE"),
    _record("variable", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"),
    _record(
        "decoded",
        "custom:TFLM_DECODE",
        restrictions="constants only: lookup tables, Huffman codes, pruned tensors",
    ),
)
