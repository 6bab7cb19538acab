"""Assignment of kernels to fast RAM: those with the most time per byte of code."""

from collections import Counter
from dataclasses import replace

from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import Cost
from firmwright.ir.tir.traversal import prim_calls
from firmwright.passes.tir.outline_common_kernels import EstimateCost

FILL_PERCENT_MAX = 75
"""The share of the region that predicted code may fill, as predictions may be low."""


def assign_ramfuncs(module: IRModule, price: EstimateCost) -> IRModule:
    """Set the attribute `ramfunc` of kernels as far as `ramfunc_bytes` suffice."""
    room = module.settings.flash.ramfunc_bytes * FILL_PERCENT_MAX // 100
    if not room or not isinstance(module.entry, tir.PrimFunc):
        return module
    calls = Counter(call.callee for call in prim_calls(module.aot_main.body))
    costs: list[tuple[tir.PrimFunc, Cost]] = []
    for name in calls:
        kernel = module.functions[name]
        if isinstance(kernel, tir.PrimFunc) and "keeps" not in kernel.attrs:
            costs.append((kernel, price(kernel, {})))

    def rank(item: tuple[tir.PrimFunc, Cost]) -> float:
        kernel, cost = item
        return -calls[kernel.name] * cost.time / cost.code_bytes

    costs.sort(key=rank)
    for kernel, cost in costs:
        if cost.code_bytes <= room:
            room -= cost.code_bytes
            attrs = {**kernel.attrs, "ramfunc": True}
            module = module.with_function(replace(kernel, attrs=attrs))
    return module
