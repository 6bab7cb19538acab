"""ethos_u: a command stream that Vela compiled for an Arm Ethos-U.

The first two inputs are the stream and the packed weights. Attributes: `arena_bytes`, `fast_bytes`
(0 if that memory is the arena), and `offsets`, those of the other inputs and of the outputs in the
arena. Only the targets ethos-u* execute it.
"""

from collections.abc import Sequence
from typing import NoReturn

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError, UsageError
from firmwright.ir.core import Attrs
from firmwright.ir.graph import ImportContext, ImportedCall, OpCall, OpDef, TensorType


def import_tflite(context: ImportContext) -> ImportedCall:
    if context.constants[0] is None or context.constants[1] is None:
        raise NotSupportedError("a command stream or weights that are not constant")
    attrs: Attrs = {name: context.node.options[name] for name in _ATTRS}
    return ImportedCall("ethos_u", dict(attrs), tuple(range(len(context.inputs))))


def infer(call: OpCall) -> tuple[TensorType, ...]:
    return call.outputs


def reference(call: OpCall, arrays: Sequence[Array]) -> NoReturn:
    what = "a command stream of Vela has no numpy reference."
    hint = "verify --reference-model with the model from before Vela, or --expect OUT.npz."
    raise UsageError(what, hint=hint)


def lower(call: OpCall, kernel: object) -> NoReturn:
    raise NotSupportedError("only an NPU executes it: --target ethos-u55-128, for example")


_ATTRS = ("arena_bytes", "fast_bytes", "offsets")
OPDEF = OpDef("ethos_u", infer, reference, lower, {"tflite:custom:ethos-u": import_tflite})
