"""ethos_u: a command stream that Vela compiled for an Arm Ethos-U.

The first two inputs are the stream and the packed weights. Attributes: `arena_bytes`,
`fast_bytes` (0 if that memory is the arena), and `offsets`, those of the other inputs
and of the outputs in the arena. Only the targets ethos-u* execute it.
"""

from collections.abc import Sequence
from typing import NoReturn

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError, UsageError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ops.opdef import OpDef


def infer(call: OpCall) -> tuple[TensorType, ...]:
    return call.outputs


def reference(call: OpCall, arrays: Sequence[Array]) -> NoReturn:
    what = "a command stream of Vela has no numpy reference."
    model = "the model from before Vela"
    hint = f"verify --reference-model with {model}, or --expect OUT.npz."
    raise UsageError(what, hint=hint)


def lower(call: OpCall, kernel: object) -> NoReturn:
    what = "only an NPU executes it: --target ethos-u55-128, for example"
    raise NotSupportedError(what)


OPDEF = OpDef(
    "ethos_u",
    infer,
    reference,
    lower,
    inputs=("commands", "weights", "x..."),
    numerics="neither",
    restrictions="on a target ethos-u*",
    is_precompiled=True,
)
