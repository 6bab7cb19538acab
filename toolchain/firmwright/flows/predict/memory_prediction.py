"""Predicts the flash and the stack that a model needs, without building the firmware.

Constants are exact. The code bytes and the stack follow from weights that are fitted to
images of gcc (`targets/cost_weights.txt`).
"""

from collections.abc import Iterator, Mapping

from firmwright.boards import Board
from firmwright.flows.predict.cost_prediction import kernel_costs
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import Cost, CostWeights
from firmwright.ir.tir.traversal import walk
from firmwright.package.metadata import summarize_compilation
from firmwright.pipeline import LoweredProgram
from firmwright.targets.cost_weights import cost_weights_for

FIRMWARE_FLASH_BYTES = 5700
"""The flash of the firmware around a model: start-up, console, link and server."""
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


def predict_flash_bytes(
    program: LoweredProgram, known: Mapping[str, Cost] | None = None
) -> int:
    """Predict the model's share of the flash: kernels, main and constants.

    `known` are the costs of the program's kernels, if they were computed before.
    """
    module = program.module
    costs = kernel_costs(module) if known is None else known
    code: dict[str, float] = {}
    for name, cost in costs.items():
        kernel = module.kernel(name)
        factor = _weights_of(module, kernel).image.get("code", 1.0)
        code[kernel.code] = factor * cost.code_bytes
    main_bytes = _MAIN_BYTES + _CALL_BYTES * len(costs)
    return round(sum(code.values())) + main_bytes + constants_in_flash(module)


def _weights_of(module: IRModule, kernel: tir.PrimFunc) -> CostWeights:
    return cost_weights_for(module.targets.get(str(kernel.attrs.get("target", ""))))


def flash_for_model(board: Board) -> int | None:
    """Return the flash beside the firmware around a model; None on the host."""
    if board.is_host:
        return None
    return board.flash.size_bytes - FIRMWARE_FLASH_BYTES


def predict_stack_bytes(
    program: LoweredProgram, known: Mapping[str, Cost] | None = None
) -> int | None:
    """Predict the stack of a run; None for targets without weights.

    `known` are the costs of the program's kernels, if they were computed before.
    """
    module = program.module
    costs = kernel_costs(module) if known is None else known
    needs = list(_stack_needs(module, costs))
    sizes = [need for need in needs if need is not None]
    if not sizes or len(sizes) < len(needs):
        return None
    return max(sizes)


def _stack_needs(module: IRModule, costs: Mapping[str, Cost]) -> Iterator[int | None]:
    """Yield the stack of each target's kernels: the most of each cause, together."""
    most: dict[str, dict[str, float]] = {}
    prices: dict[str, Mapping[str, float]] = {}
    for name, cost in costs.items():
        kernel = module.kernel(name)
        causes = {
            "base": 1.0,
            "loop": float(_loops(kernel)),
            "argument": float(max(len(kernel.params) - _REGISTER_ARGUMENTS, 0)),
            "spill": cost.spilled_values,
            "view": float(_views(kernel)),
        }
        target = str(kernel.attrs.get("target", ""))
        prices[target] = _weights_of(module, kernel).image
        own = most.setdefault(target, {})
        for cause, count in causes.items():
            own[cause] = max(own.get(cause, 0.0), count)
    for target, causes in most.items():
        own_prices = prices[target]
        if not own_prices:
            yield None
            continue
        yield round(sum(own_prices[cause] * count for cause, count in causes.items()))


def _loops(kernel: tir.PrimFunc) -> int:
    loops = 0
    for node in walk(kernel.body):
        if isinstance(node, tir.For) and node.kind != "unrolled":
            loops += 1
    return loops


def _views(kernel: tir.PrimFunc) -> int:
    return sum(isinstance(node, tir.DeclBuffer) for node in walk(kernel.body))
