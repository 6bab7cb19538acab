"""Assignment of kernels to RAM without wait states: those with the most time per byte of code."""

from collections import Counter
from dataclasses import replace

from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls
from firmwright.passes.tir.outline_common_kernels import EstimateCost

RAMFUNC_ATTR = "ramfunc"
FILL_PERCENT_MAX = 75
"""The share of the region that predicted code may fill; predictions are too low by up to a third."""


def assign_ramfuncs(module: IRModule, price: EstimateCost) -> IRModule:
    """Set the attribute `ramfunc` of kernels as far as the module's `ramfunc_bytes` suffice."""
    room = int(str(module.attrs.get("ramfunc_bytes", 0))) * FILL_PERCENT_MAX // 100
    if not room or not isinstance(module.entry, tir.PrimFunc):
        return module
    calls = Counter(call.callee for call in prim_calls(module.aot_main.body))
    kernels = [module.functions[name] for name in calls]
    costs = {
        kernel.name: price(kernel, {}) for kernel in kernels if isinstance(kernel, tir.PrimFunc)
    }
    costs = {name: cost for name, cost in costs.items() if "keeps" not in module.kernel(name).attrs}
    density = {name: calls[name] * cost.time / cost.code_bytes for name, cost in costs.items()}
    for name in sorted(costs, key=lambda name: -density[name]):
        if costs[name].code_bytes <= room:
            room -= costs[name].code_bytes
            kernel = module.kernel(name)
            attrs = {**kernel.attrs, RAMFUNC_ATTR: True}
            module = module.with_function(replace(kernel, attrs=attrs))
    return module
