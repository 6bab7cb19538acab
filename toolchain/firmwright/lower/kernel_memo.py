"""Kernels that were built earlier, for compilations that need the same ones again."""

from collections.abc import Callable
from dataclasses import dataclass, field

from firmwright.ir.core import Span, Target
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.schedule import LoweringCandidate, ScheduleConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRequest:
    """The inputs of a kernel and its price, except for the stalls of memory.

    `call` may be a band of a call with the outputs `whole_outputs`. `method` builds the
    kernel: that of a schedule with the configuration `config`, or that of the
    operator's definition.
    """

    name: str
    span: Span
    call: OpCall
    whole_outputs: tuple[TensorType, ...]
    target: Target | None
    target_name: str
    method: Callable[..., None]
    config: ScheduleConfig


@dataclass(frozen=True)
class KernelMemo:
    """The kernels built so far, by the content of the request.

    Compilations of one model for several boards or budgets can share it, as all have
    the same operators, intrinsics and weights of the cost model.
    """

    _built: dict[KernelRequest, LoweringCandidate] = field(default_factory=dict)

    def find(self, request: KernelRequest) -> LoweringCandidate | None:
        return self._built.get(request)

    def add(self, request: KernelRequest, candidate: LoweringCandidate) -> None:
        self._built[request] = candidate
