"""Predicts the flash and the stack that a model needs, without building the firmware.

Constants are exact. The code bytes and the stack follow from weights that are fitted to
images of gcc (`targets/cost_weights.txt`).
"""

from collections.abc import Iterator

from firmwright.flows.predict.cost_prediction import kernel_calls, kernel_costs
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import CostWeights
from firmwright.ir.tir.op_count import count_operations
from firmwright.ir.tir.traversal import walk
from firmwright.package.metadata import summarize_compilation
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.pipeline import LoweredProgram
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.cost_weights import cost_weights_for

_MAIN_BYTES = 160
"""Code and tables of a model besides its kernels: the main and the descriptions."""
_CALL_BYTES = 16
"""Code of the main for each call of a kernel."""
_REGISTER_ARGUMENTS = 4
"""Arguments that a call passes in registers."""


def constants_in_flash(module: IRModule) -> int:
    """Return the bytes of the constants in the program's image."""
    total = 0
    for constant in summarize_compilation(module).constants:
        if not constant.pool:
            total += constant.size_bytes
    return total


def predict_flash_bytes(program: LoweredProgram) -> int:
    """Predict the model's share of the flash: kernels, main and constants."""
    module = program.module
    costs = kernel_costs(module)
    code: dict[str, int] = {}
    for name, cost in costs.items():
        code[module.kernel(name).code] = cost.code_bytes
    main_bytes = _MAIN_BYTES + _CALL_BYTES * len(costs)
    return sum(code.values()) + main_bytes + constants_in_flash(module)


def predict_stack_bytes(program: LoweredProgram) -> int | None:
    """Predict the stack of a run; None for targets without weights."""
    module = program.module
    needs = list(_stack_needs(module))
    known = [need for need in needs if need is not None]
    if not known or len(known) < len(needs):
        return None
    return max(known)


def _stack_needs(module: IRModule) -> Iterator[int | None]:
    """Yield the stack of each target's kernels: the most of each cause, together."""
    intrinsics = collect_intrinsics(module, INTRINSICS)
    most: dict[str, dict[str, float]] = {}
    weights_by_target: dict[str, CostWeights] = {}
    names = {call.callee for call in kernel_calls(module.aot_main.body)}
    for name in sorted(names):
        kernel = module.kernel(name)
        target = str(kernel.attrs.get("target", ""))
        weights = cost_weights_for(module.targets.get(target))
        weights_by_target[target] = weights
        counts = count_operations(
            kernel, intrinsics, weights.instructions, weights.registers
        )
        causes = {
            "base": 1.0,
            "loop": float(_loops(kernel)),
            "argument": float(max(len(kernel.params) - _REGISTER_ARGUMENTS, 0)),
            "spill": counts.written.get("spill", 0.0),
            "view": float(_views(kernel)),
        }
        own = most.setdefault(target, {})
        for cause, count in causes.items():
            own[cause] = max(own.get(cause, 0.0), count)
    for target, causes in most.items():
        prices = weights_by_target[target].stack_bytes
        if not prices:
            yield None
            continue
        yield round(sum(prices[cause] * count for cause, count in causes.items()))


def _loops(kernel: tir.PrimFunc) -> int:
    loops = 0
    for node in walk(kernel.body):
        if isinstance(node, tir.For) and node.kind != "unrolled":
            loops += 1
    return loops


def _views(kernel: tir.PrimFunc) -> int:
    return sum(isinstance(node, tir.DeclBuffer) for node in walk(kernel.body))
