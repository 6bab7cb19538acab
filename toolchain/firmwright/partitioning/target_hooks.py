"""Calls the hooks of targets, each at one place of the pipeline, and judges what they return.

In: a module with functions that carry targets. Out: the module in which each such function is a
PrimFunc of the same name, so that calls of it need no change; the constants and files that came
with it; or one UsageError. Functions that are equal but for names are handed to a hook once. What
is a PrimFunc already is left alone, and so is what belongs to another target.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.ir import tir
from firmwright.ir.core import Target
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value, called_functions
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.traversal import Node
from firmwright.partitioning.function_targets import check_only_modified, functions_for, target_of
from firmwright.targets.target_kind import FunctionHook, Hook, HookName, LoweredFunction, TargetKind

BACKEND_FILES_DIR = "backend"
"""The folder of a project that backends' C files are in, each backend's in one of its own."""

TargetKindLookup = Callable[[Target], TargetKind]


def run_hook(module: IRModule, hook: HookName, kind_of: TargetKindLookup) -> IRModule:
    """Calls that hook of every target that has it, in the order of the module's table."""
    for name, target in module.targets.items():
        found: Hook | None = getattr(kind_of(target).hooks, hook)
        if found is None or not functions_for(module, name):
            continue
        what = f"the hook {hook} of target {name}"
        if isinstance(found, Pass | tuple):
            passes = found if isinstance(found, tuple) else (found,)
            for step in passes:
                after = step(module)
                check_only_modified(module, after, name, f"{what} ({step.name})")
                module = after
        else:
            module = _each_function(module, name, found, what)
    return module


def check_lowered(module: IRModule) -> IRModule:
    """The module without functions that were parts of others; UsageError if one is left over."""
    roots = {name for name, func in module.functions.items() if not target_of(func)}
    needed = _reached(module, roots)
    for name in needed:
        function = module.functions[name]
        if isinstance(function, Function) and target_of(function):
            raise UsageError(
                f"no hook of target {target_of(function)} made a kernel of the function @{name}.",
                where=module.name,
                hint="a backend with `lower` or `generate`, or another --target.",
            )
    kept = {
        name: func
        for name, func in module.functions.items()
        if name in needed or not isinstance(func, Function) or not target_of(func)
    }
    return module if len(kept) == len(module.functions) else replace(module, functions=kept)


def _reached(module: IRModule, roots: set[str]) -> set[str]:
    found: set[str] = set()
    queue = sorted(roots)
    while queue:
        name = queue.pop()
        function = module.functions.get(name)
        if name in found or function is None:
            continue
        found.add(name)
        if isinstance(function, Function):
            queue += [called for call in function.body for called in called_functions(call)]
    return found


# ---- Function -> PrimFunc ------------------------------------------------------------------------


def _each_function(module: IRModule, name: str, hook: FunctionHook, what: str) -> IRModule:
    """`hook` on every graph function of the target that another one calls."""
    target = module.targets[name]
    roots = {key for key, func in module.functions.items() if target_of(func) != name}
    called = {
        callee
        for root in roots
        if isinstance(func := module.functions[root], Function)
        for call in func.body
        for callee in called_functions(call)
    }
    known: dict[Hashable, LoweredFunction] = {}
    for function in functions_for(module, name):
        if not isinstance(function, Function) or function.name not in called:
            continue
        key = structural_key(function, module)
        if key not in known:
            known[key] = hook(function, module, target)
        module = _replaced(module, function, known[key], what)
    return module


def _replaced(module: IRModule, function: Function, made: LoweredFunction, what: str) -> IRModule:
    """The module with the kernel in the place of `function`."""
    _check_params(function, made.function, what)
    target = target_of(function)
    attrs = {**made.function.attrs, "target": target}
    kernel = replace(made.function, name=function.name, attrs=attrs, span=function.body[-1].span)
    for name, constant in made.constants.items():
        if module.constants.get(name, constant) != constant:
            raise UsageError(
                f"{what} made the constant @{name} twice, with other bytes.", where=module.name
            )
    folder = f"{BACKEND_FILES_DIR}/{module.targets[target].kind}"
    files = {f"{folder}/{name}": data for name, data in made.files.items()}
    return replace(
        module.with_function(kernel),
        constants={**module.constants, **made.constants},
        files={**module.files, **files},
    )


def _check_params(function: Function, kernel: tir.PrimFunc, what: str) -> None:
    def listed(values: tuple[Value, ...], role: str) -> list[tuple[str, str, int]]:
        return [(role, value.type.dtype.name, value.type.elements) for value in values]

    wanted = listed(function.params, "in") + listed(function.results, "out")
    given = [_shown(param) for param in kernel.params]
    if given != wanted:
        raise UsageError(
            f"{what} made a kernel of @{function.name} with the parameters {_list(given)}, "
            f"where the function has {_list(wanted)}.",
            hint="the function's parameters, then its results; constants and workspace are "
            "allocated in the body.",
        )


def _shown(param: tir.Param) -> tuple[str, str, int]:
    if isinstance(param.value, tir.Buffer):
        return param.role, param.value.dtype.name, param.value.elements
    return param.role, param.value.dtype.name, 0


def _list(found: list[tuple[str, str, int]]) -> str:
    return ", ".join(f"{role} {dtype}[{count}]" for role, dtype, count in found) or "none"


# ---- which functions are equal -------------------------------------------------------------------


def structural_key(function: Function, module: IRModule) -> Hashable:
    """What tells functions apart but for names: equal ones can have one kernel."""
    numbers: dict[str, int] = {}

    def value(item: Value | None) -> Hashable:
        if item is None:
            return None
        if item.constant is not None:
            return module.constants[item.constant].digest, _type(item.type)
        return numbers.setdefault(item.name, len(numbers)), _type(item.type)

    def call(item: Call) -> Hashable:
        callee = module.callee(item.op)
        op = structural_key(callee, module) if isinstance(callee, Function) else item.op
        attrs = tuple(sorted((name, repr(found)) for name, found in item.attrs.items()))
        return op, attrs, tuple(map(value, item.inputs)), tuple(map(value, item.outputs))

    params = tuple(map(value, function.params))
    body = tuple(map(call, function.body))
    composite = function.attrs.get("composite", "")
    return composite, params, body, tuple(map(value, function.results))


def _type(kind: TensorType) -> Hashable:
    return kind.shape, kind.dtype.name, repr(kind.quantization)


# ---- single intrinsics ---------------------------------------------------------------------------


def rename_intrinsics(target: str, names: Mapping[str, str]) -> Pass:
    """A pass for `tir_to_runtime`: kernels of `target` call other intrinsics by these names."""

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.IntrinsicCall) and node.name in names:
            return replace(node, name=names[node.name])
        return None

    def run(module: IRModule) -> IRModule:
        for function in functions_for(module, target):
            if isinstance(function, tir.PrimFunc):
                module = module.with_function(rewrite_func(function, rule))
        return module

    return Pass("rename-intrinsics", run)
