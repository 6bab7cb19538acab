"""Functions in RAM: those with the most time per byte of code, while there is room."""

from dataclasses import replace

from firmwright.ir.module import IRModule
from firmwright.ir.parser import parse_module
from firmwright.ir.settings import FlashTiming, Settings
from firmwright.ir.tir.cost_model import Cost
from firmwright.passes.tir.assign_ramfuncs import assign_ramfuncs

TEXT = """firmwright ir 2
module @net
attrs {entry="run"}
func @long(in x: i8[4], out y: i8[4]) { for i in 0..4 { y[i] = x[i] } }
func @short(in x: i8[4], out y: i8[4]) { y[0] = x[0] }
func @run() attrs {aot_main=true} {
  allocate t: i8[4] as input
  allocate u: i8[4] as activation
  allocate v: i8[4] as output
  call @long(ptr(t, 0, 4, r), ptr(u, 0, 4, w)) op 0
  call @short(ptr(u, 0, 4, r), ptr(v, 0, 4, w)) op 1
}
"""
COSTS = {"long": Cost(900, None, 300), "short": Cost(500, None, 100)}


def in_ram(room: int) -> set[str]:
    settings = Settings(flash=FlashTiming(ramfunc_bytes=room))
    module = replace(parse_module(TEXT), settings=settings)
    marked: IRModule = assign_ramfuncs(module, lambda kernel, _: COSTS[kernel.name])
    return {name for name, f in marked.functions.items() if f.attrs.get("ramfunc")}


def test_the_densest_functions_come_first_and_a_quarter_stays_free() -> None:
    assert in_ram(0) == set()
    assert in_ram(160) == {"short"}
    assert in_ram(400) == {"short"}
    assert in_ram(600) == {"short", "long"}
