"""Assignment of kernels to fast RAM: those with the most time per byte of code."""

from collections import Counter
from dataclasses import replace

from firmwright.ir import tir
from firmwright.ir.module import IRModule
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
    kernels = [module.functions[name] for name in calls]
    costs = [
        (kernel, price(kernel, {}))
        for kernel in kernels
        if isinstance(kernel, tir.PrimFunc) and "keeps" not in kernel.attrs
    ]
    costs.sort(
        key=lambda item: -calls[item[0].name] * item[1].time / item[1].code_bytes
    )
    for kernel, cost in costs:
        if cost.code_bytes <= room:
            room -= cost.code_bytes
            module = module.with_function(
                replace(kernel, attrs={**kernel.attrs, "ramfunc": True})
            )
    return module
