"""custom: an operator of which only the name is known: TFLite's custom ones, foreign ONNX domains.

Attributes: `domain` and `name` as the file has them, `data` the operator's own options as hex: for
TFLite the bytes of its options, for ONNX its attributes as JSON. A call of it is imported where
somebody claims the name, a backend's pattern or a `CustomOp`; it has no loops of its own.
Invariant: output types are what the file declares or what the claimant's type rule says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from firmwright.base.errors import UsageError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    ConformanceCase,
    ImportContext,
    ImportedCall,
    NotSupportedError,
    OpCall,
    OpDef,
)


def declared_outputs(call: OpCall) -> tuple[TensorType, ...]:
    """The type rule of an operator whose file says what comes out."""
    return call.outputs


def no_int_args(call: OpCall) -> Sequence[int]:
    return ()


@dataclass(frozen=True, slots=True)
class CustomOp:
    """An operator that the user brings: a C function, its type rule, what it means in numpy.

    The function takes pointers to the inputs in order, constants among them, then to the outputs,
    then to `workspace_bytes(call)` bytes where those are any, then the int32 numbers that
    `int_args(call)` gives. `sources` are its C files by name.
    """

    name: str
    function: str
    sources: Mapping[str, str]
    reference: Callable[[OpCall, Sequence[Array]], tuple[Array, ...]]
    infer: Callable[[OpCall], tuple[TensorType, ...]] = declared_outputs
    int_args: Callable[[OpCall], Sequence[int]] = no_int_args
    workspace_bytes: Callable[[OpCall], int] = lambda call: 0
    macs: Callable[[OpCall], int] = lambda call: 0
    domain: str = ""


@dataclass(frozen=True, slots=True)
class CustomOpRegistry:
    """Those of this process, by domain and name: code, like the backends, and no state."""

    _known: dict[tuple[str, str], CustomOp] = field(default_factory=dict)

    def register(self, op: CustomOp) -> None:
        """Claims the operator; of two claims the later one counts."""
        if not op.function.isidentifier():
            raise UsageError(
                f"the function {op.function!r} of the custom operator {op.name} is no C name."
            )
        self._known[op.domain, op.name] = op

    def find(self, domain: str, name: str) -> CustomOp | None:
        return self._known.get((domain, name))

    def of(self, call: OpCall) -> CustomOp | None:
        """Whose call that is."""
        return self.find(call.str_attr("domain"), call.str_attr("name"))


CUSTOM_OPS = CustomOpRegistry()


def custom_options_of(call: OpCall) -> bytes:
    """The operator's own options."""
    return bytes.fromhex(call.str_attr("data"))


def import_custom(context: ImportContext) -> ImportedCall:
    """A custom operator of TFLite, all of its inputs kept."""
    node = context.node
    name = node.op.removeprefix("custom:")
    attrs = {"domain": "", "name": name, "data": node.custom_options.hex()}
    return ImportedCall("custom", attrs, tuple(range(len(node.inputs))))


def infer(call: OpCall) -> tuple[TensorType, ...]:
    claimed = CUSTOM_OPS.of(call)
    return call.outputs if claimed is None else claimed.infer(call)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    claimed = CUSTOM_OPS.of(call)
    if claimed is None:
        raise UsageError(
            f"what the custom operator {call.str_attr('name')} computes is not known here.",
            hint="--custom-op FILE.py says it; or verify with --expect OUT.npz.",
        )
    return claimed.reference(call, arrays)


def lower(call: OpCall, kernel: object) -> None:
    raise NotSupportedError("no target takes this custom operator; --custom-op FILE.py brings it")


def macs(call: OpCall) -> int:
    claimed = CUSTOM_OPS.of(call)
    return 0 if claimed is None else claimed.macs(call)


def cases() -> Iterator[ConformanceCase]:
    """There is no definition to hold it against."""
    return iter(())


OPDEF = OpDef(
    name="custom",
    infer=infer,
    reference=reference,
    lower=lower,
    imports={},
    cases=cases,
    dtypes=(),
    macs=macs,
)
