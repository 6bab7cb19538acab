"""Kernels that were built earlier, for compilations that need the same ones again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from firmwright.ir import tir
from firmwright.ir.core import Constant, Span, Target
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.cost_model import Cost
from firmwright.ir.tir.memory_effects import scratch_bytes
from firmwright.ops.schedule import (
    DEFAULT_SCHEDULE,
    NO_CONFIG,
    LoweringCandidate,
    ScheduleConfig,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRequest:
    """The inputs of a kernel; the core decides only its price.

    `call` may be a band of a call with the outputs `whole_outputs`. `method` builds the
    kernel: that of a schedule with the configuration `config`, or that of the
    operator's definition.
    """

    name: str
    span: Span
    call: OpCall
    whole_outputs: tuple[TensorType, ...]
    target_name: str
    method: Callable[..., None]
    config: ScheduleConfig


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """A kernel without its cost, by the schedule `rule` with `config`."""

    function: tir.PrimFunc
    constants: Mapping[str, Constant]
    rule: str = DEFAULT_SCHEDULE
    config: ScheduleConfig = NO_CONFIG

    def with_cost(self, cost: Cost) -> LoweringCandidate:
        constants = self.constants.values()
        return LoweringCandidate(
            self.rule,
            self.config,
            self.function,
            self.constants,
            scratch_bytes=scratch_bytes(self.function),
            flash_bytes=sum([constant.size_bytes for constant in constants]),
            code_bytes=cost.code_bytes,
            instructions=cost.instructions,
            cycles=cost.cycles,
        )


@dataclass(frozen=True)
class KernelMemo:
    """The kernels built so far, by the content of the request.

    Compilations of one model for several boards or budgets can share it, as all have
    the same operators, intrinsics and weights of the cost model. Prices are found by
    the identity of a kernel, which is kept for that.
    """

    _built: dict[KernelRequest, BuiltKernel] = field(default_factory=dict)
    _priced: dict[tuple[int, Target | None], tuple[BuiltKernel, LoweringCandidate]] = (
        field(default_factory=dict)
    )

    def find(self, request: KernelRequest) -> BuiltKernel | None:
        return self._built.get(request)

    def add(self, request: KernelRequest, kernel: BuiltKernel) -> None:
        self._built[request] = kernel

    def find_priced(
        self, kernel: BuiltKernel, target: Target | None
    ) -> LoweringCandidate | None:
        found = self._priced.get((id(kernel), target))
        return None if found is None else found[1]

    def add_priced(
        self, kernel: BuiltKernel, target: Target | None, candidate: LoweringCandidate
    ) -> None:
        self._priced[id(kernel), target] = kernel, candidate
