"""Kernels that were built earlier, for compilations that need the same ones again."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from firmwright.ir import tir
from firmwright.ir.core import Attr, Constant, Span, Target
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.cost_model import Cost
from firmwright.ir.tir.kernel_code import code_of, with_code
from firmwright.ir.tir.memory_effects import scratch_bytes
from firmwright.ir.tir.traversal import with_body
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

    def with_cost(self, cost: Cost, scratch: int) -> LoweringCandidate:
        """Return the kernel with its cost and its bytes of scratch memory."""
        constants = self.constants.values()
        return LoweringCandidate(
            self.rule,
            self.config,
            self.function,
            self.constants,
            scratch_bytes=scratch,
            flash_bytes=sum([constant.size_bytes for constant in constants]),
            code_bytes=cost.code_bytes,
            instructions=cost.instructions,
            cycles=cost.cycles,
        )


@dataclass(frozen=True)
class KernelMemo:
    """The kernels built so far, by the content of the request.

    Compilations of one model for several boards or budgets can share it, as all have
    the same operators, intrinsics and weights of the cost model.

    Kernels that differ only in names of constants, as those of equal layers do, share
    their code, so that analyses find what they know of it by its identity. Costs are an
    example. `_codes` keeps all codes, so that identities are unique.
    """

    _built: dict[KernelRequest, BuiltKernel] = field(default_factory=dict)
    _codes: defaultdict[tuple[Attr, Attr], list[tir.Stmt]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _costs: dict[tuple[int, Target | None], Cost] = field(default_factory=dict)
    _scratch: dict[int, int] = field(default_factory=dict)

    def find(self, request: KernelRequest) -> BuiltKernel | None:
        return self._built.get(request)

    def add(self, request: KernelRequest, kernel: BuiltKernel) -> None:
        self._built[request] = kernel

    def share_code(self, function: tir.PrimFunc) -> tir.PrimFunc:
        """Return `function`, with the code of an earlier kernel if that is equal."""
        code = code_of(function.body)
        known = self._codes[function.attrs["op"], function.attrs["schedule"]]
        for other in known:
            if other == code:
                body = with_code(function.body, other)
                return with_body(function, body)
        known.append(code)
        return function

    def cost(
        self, kernel: BuiltKernel, target: Target | None, estimate: Callable[[], Cost]
    ) -> Cost:
        """Return the cost of a kernel on a target, by `estimate` if its code is new."""
        key = id(code_of(kernel.function.body)), target
        if key not in self._costs:
            self._costs[key] = estimate()
        return self._costs[key]

    def scratch_bytes(self, kernel: BuiltKernel) -> int:
        """Return the bytes that a kernel allocates, counted once for each code."""
        key = id(code_of(kernel.function.body))
        if key not in self._scratch:
            self._scratch[key] = scratch_bytes(kernel.function)
        return self._scratch[key]
