"""Merging of constants with equal bytes, dtype and pool into the first of them.

Graph constants must also have equal shapes. Initial values of state are not merged with
kernel constants, which may be assigned to memory that only kernels can access.
"""

from dataclasses import replace

from firmwright.ir import tir
from firmwright.ir.graph.nodes import Function, Value
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.program_record import keeps_constants_apart
from firmwright.ir.tir.traversal import Node, rewrite_func
from firmwright.passes.graph.value_names import map_values
from firmwright.passes.map_functions import map_graph_functions, map_prim_funcs


def find_duplicates(module: IRModule) -> dict[str, str]:
    apart = {state.initial for state in module.io.state}
    has_graphs = False
    for function in module.functions.values():
        if isinstance(function, Function):
            has_graphs = True
            apart.update(state.initial for state in function.state)
    first: dict[tuple[str, str, str, tuple[int, ...]], str] = {}
    duplicates: dict[str, str] = {}
    for name, constant in module.constants.items():
        if name in apart:
            continue
        shape = constant.shape if has_graphs else ()
        key = constant.dtype.name, constant.digest, constant.pool, shape
        original = first.setdefault(key, name)
        if original != name:
            duplicates[name] = original
    return duplicates


def run(module: IRModule) -> IRModule:
    if keeps_constants_apart(module):
        return module
    moved = find_duplicates(module)
    if not moved:
        return module

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.AllocateConst) and node.constant in moved:
            return replace(node, constant=moved[node.constant])
        return None

    def merged(value: Value) -> Value:
        constant = value.constant and moved.get(value.constant)
        return replace(value, constant=constant) if constant else value

    module = map_prim_funcs(module, lambda func: rewrite_func(func, rule))
    module = map_graph_functions(module, lambda graph: map_values(graph, merged))
    constants = dict(module.constants)
    for name in moved:
        del constants[name]
    return replace(module, constants=constants)


PASS = Pass("merge-constants", run)
