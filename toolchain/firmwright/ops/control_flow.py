"""Operators without kernels: control flow, variables and compressed constants.

if runs function `then` or `else`, selected by input 0, on the other inputs; while runs
`body` on the loop-carried values while `cond` is true. `ir/graph/evaluate.py` executes
both, and `choose/main_control_flow.py` inlines them into the AOT main. The importer
resolves variable to state, and decoded to a constant. Semantics: TFLite's and TFLM's
operators of these names.
"""

from typing import NoReturn

from firmwright.base.errors import InternalError
from firmwright.ops.opdef import OpDef


def _refuse(*_: object) -> NoReturn:
    raise InternalError("control flow has no kernel or reference: evaluate the module")


OPDEFS = tuple(
    OpDef(name, lambda call: call.outputs, _refuse, _refuse)
    for name in ("if", "while", "variable", "decoded")
)
