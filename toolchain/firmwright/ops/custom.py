"""custom: an operator of a TFLite or ONNX file that is known only by name.

It is a custom operator of TFLite, or belongs to a foreign ONNX domain.

Attributes: `domain` and `name` from the file, and `data`, the operator's options in
hexadecimal (the option bytes for TFLite, the attributes as JSON for ONNX). A backend
pattern or a `CustomOp` must accept the name; there are no default loops.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError, UsageError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.control import CustomAttrs
from firmwright.ops.opdef import OpDef


@dataclass(frozen=True, slots=True)
class CustomOp:
    """A user-supplied operator: a C function, its type rule and its numpy reference.

    The C function takes pointers to the inputs in order (including constants), the
    outputs and, if `workspace_bytes(call)` is not 0, a workspace, then the int32 values
    of `int_args(call)`. `sources` maps C file names to their text.
    """

    name: str
    function: str
    sources: Mapping[str, str]
    reference: Callable[[OpCall, Sequence[Array]], tuple[Array, ...]]
    infer: Callable[[OpCall], tuple[TensorType, ...]] = lambda call: call.outputs
    int_args: Callable[[OpCall], Sequence[int]] = lambda call: ()
    workspace_bytes: Callable[[OpCall], int] = lambda call: 0
    macs: Callable[[OpCall], int] = lambda call: 0
    domain: str = ""


@dataclass(frozen=True, slots=True)
class CustomOpRegistry:
    """The custom operators of this process by (domain, name)."""

    _ops: dict[tuple[str, str], CustomOp] = field(default_factory=dict)

    def register(self, op: CustomOp) -> None:
        """Register an operator; a later registration replaces an earlier one."""
        if not op.function.isidentifier():
            raise UsageError(
                f"the function of the custom operator {op.name}, {op.function!r}, "
                "is not a C identifier."
            )
        self._ops[op.domain, op.name] = op

    def find(self, domain: str, name: str) -> CustomOp | None:
        return self._ops.get((domain, name))

    def for_call(self, call: OpCall) -> CustomOp | None:
        attrs = call.attributes(CustomAttrs)
        return self.find(attrs.domain, attrs.name)


CUSTOM_OPS = CustomOpRegistry()


def custom_options_of(call: OpCall) -> bytes:
    return bytes.fromhex(call.attributes(CustomAttrs).data)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    op = CUSTOM_OPS.for_call(call)
    return call.outputs if op is None else op.infer(call)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    op = CUSTOM_OPS.for_call(call)
    if op is None:
        name = call.attributes(CustomAttrs).name
        what = f"the custom operator {name} has no numpy reference."
        hint = "define it with --custom-op FILE.py, or verify with --expect OUT.npz."
        raise UsageError(what, hint=hint)
    return op.reference(call, arrays)


def lower(call: OpCall, kernel: object) -> None:
    raise NotSupportedError(
        "no target implements this custom operator; define it with --custom-op FILE.py"
    )


def count_macs(call: OpCall) -> int:
    op = CUSTOM_OPS.for_call(call)
    return 0 if op is None else op.macs(call)


OPDEF = OpDef("custom", infer, reference, lower, macs=count_macs)
