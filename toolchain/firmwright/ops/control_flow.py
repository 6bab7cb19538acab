"""Operators without kernels: control flow, variables and compressed constants.

if runs function `then` or `else`, selected by input 0, on the other inputs; while runs `body` on
the loop-carried values while `cond` is true. `ir/graph/evaluate.py` executes both, and
`select/main_control_flow.py` inlines them into the AOT main. The importer resolves variables to
state and decodes constants.
Semantics: TFLite's and TFLM's operators of these names.
"""

from typing import NoReturn

from firmwright.base.errors import InternalError
from firmwright.ir.graph import OpDef


def _refuse(*_: object) -> NoReturn:
    raise InternalError("control flow has no kernel, importer or reference: evaluate the module")


def _record(name: str, *foreign: str) -> OpDef:
    imports = {f"tflite:{item}": _refuse for item in foreign}
    return OpDef(name, lambda call: call.outputs, _refuse, _refuse, imports)


OPDEFS = (
    _record("if", "IF"),
    _record("while", "WHILE"),
    _record("variable", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"),
    _record("decoded", "custom:TFLM_DECODE"),
)
