"""Call hooks of targets, once for functions that differ only in names, and check the results."""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace

from firmwright.base.errors import UsageError
from firmwright.base.plugin_calls import plugin_call
from firmwright.base.source_paths import BACKEND_FILES_DIR
from firmwright.ir import tir
from firmwright.ir.bind_requests import bind_constants
from firmwright.ir.core import Attrs
from firmwright.ir.graph.devices import CYCLES_ATTR
from firmwright.ir.graph.nodes import Call, Function, Value, called_functions
from firmwright.ir.graph.patterns import Match
from firmwright.ir.module import IRModule, Pass
from firmwright.partitioning.target_resolution import (
    check_only_modified,
    functions_on_target,
    target_of,
    with_new_files,
)
from firmwright.passes.tir.dce import reachable_functions
from firmwright.targets import target_kind
from firmwright.targets.backend_calls import modeled_cost
from firmwright.targets.kernel_builder import flatten_calls
from firmwright.targets.registry import backend_of
from firmwright.targets.saved_backend import kind_in


def run_hook(module: IRModule, hook: target_kind.HookName) -> IRModule:
    for name in module.targets:
        hook_impl: target_kind.Hook | None = getattr(kind_in(module, name).hooks, hook)
        if hook_impl is None or not functions_on_target(module, name):
            continue
        pass_label = f"`{target_kind.BACKEND_METHODS[hook]}` of target {name}"
        if isinstance(hook_impl, Pass | tuple):
            passes = hook_impl if isinstance(hook_impl, tuple) else (hook_impl,)
            for step in passes:
                with plugin_call(f"{pass_label} ({step.name})"):
                    after = step(module)
                check_only_modified(module, after, name, f"{pass_label} ({step.name})")
                module = after
        else:
            module = _call_function_hook(module, name, hook_impl, pass_label)
    return module


def check_lowered(module: IRModule) -> IRModule:
    """Remove functions that were inlined into others; raise UsageError if one was not lowered."""
    needed = _needed_functions(module)
    for function in unlowered_functions(module):
        raise UsageError(
            f"no hook of target {target_of(function)} made a kernel of the function "
            f"@{function.name}.",
            where=module.name,
            hint="a backend with `lower` or `generate`, or another --target.",
        )
    remaining = {
        name: func
        for name, func in module.functions.items()
        if name in needed or not isinstance(func, Function) or not target_of(func)
    }
    is_same = len(remaining) == len(module.functions)
    return module if is_same else replace(module, functions=remaining)


def unlowered_functions(module: IRModule) -> Iterator[Function]:
    """Yield the graph functions of targets that are called."""
    for name in _needed_functions(module):
        function = module.functions[name]
        if isinstance(function, Function) and target_of(function):
            yield function


def _needed_functions(module: IRModule) -> Collection[str]:
    roots = {name for name, func in module.functions.items() if not target_of(func)}
    return reachable_functions(module, sorted(roots))


# ---- Function -> PrimFunc ------------------------------------------------------------------------


def _call_function_hook(
    module: IRModule, name: str, hook: target_kind.FunctionHook, pass_label: str
) -> IRModule:
    target = module.targets[name]
    called = {
        callee
        for func in module.functions.values()
        if isinstance(func, Function) and target_of(func) != name
        for call in func.body
        for callee in called_functions(call)
    }
    lowered: dict[Hashable, target_kind.LoweredFunction] = {}
    for function in functions_on_target(module, name):
        if not isinstance(function, Function) or function.name not in called:
            continue
        key = structural_key(function, module)
        if key not in lowered:
            with plugin_call(f"{pass_label}, for the function @{function.name},"):
                lowered[key] = hook(function, module, target)
        module = _replace_by_kernel(module, function, lowered[key], pass_label)
    return module


def _replace_by_kernel(
    module: IRModule, function: Function, lowered: target_kind.LoweredFunction, pass_label: str
) -> IRModule:
    _check_params(function, lowered.function, pass_label)
    target = target_of(function)
    attrs = {**lowered.function.attrs, "target": target, **_declared_cost(function, module)}
    kernel = replace(lowered.function, name=function.name, attrs=attrs, span=function.body[-1].span)
    for name, constant in lowered.constants.items():
        if module.constants.get(name, constant) != constant:
            message = f"{pass_label} made the constant @{name} twice, with other bytes."
            raise UsageError(message, where=module.name)
    folder = f"{BACKEND_FILES_DIR}/{module.targets[target].kind}"
    files = {f"{folder}/{name}": data for name, data in lowered.files.items()}
    constants = {**module.constants, **lowered.constants}
    module = replace(module.with_function(kernel), constants=constants)
    values = [value for call in flatten_calls(function, module) for value in call.inputs]
    module = bind_constants(module, values, kernel.name)
    return with_new_files(module, files, f"{pass_label}, for @{function.name},")


def _declared_cost(function: Function, module: IRModule) -> Attrs:
    target = module.targets[target_of(function)]
    backend = backend_of(target)
    if backend is None:
        return {}
    calls = tuple(flatten_calls(function, module))
    match = Match(calls, module, target, backend.version, function)
    cycles = modeled_cost(backend, match)
    return {} if cycles is None else {CYCLES_ATTR: cycles}


def _check_params(function: Function, kernel: tir.PrimFunc, pass_label: str) -> None:
    def listed(values: tuple[Value, ...], role: str) -> list[tuple[str, str, int]]:
        return [(role, value.type.dtype.name, value.type.elements) for value in values]

    expected = listed(function.params, "in") + listed(function.results, "out")
    actual = [
        (p.role, p.value.dtype.name, p.value.elements if isinstance(p.value, tir.Buffer) else 0)
        for p in kernel.params
    ]
    if actual != expected:
        raise UsageError(
            f"{pass_label} made a kernel of @{function.name} with the parameters "
            f"{_format_params(actual)}, where the function has {_format_params(expected)}.",
            hint="the function's parameters, then its results; constants and workspace are "
            "allocated in the body.",
        )


def _format_params(params: Sequence[tuple[str, str, int]]) -> str:
    return ", ".join(f"{role} {dtype}[{count}]" for role, dtype, count in params) or "none"


# ---- which functions are equal -------------------------------------------------------------------


def structural_key(function: Function, module: IRModule) -> Hashable:
    """Return a key that is equal for functions that differ only in names and can share a kernel.

    It contains what a hook may read: types, constants, devices, memory scopes and attributes.
    """
    numbers: dict[str, int] = {}

    def value(item: Value | None) -> Hashable:
        if item is None:
            return None
        place = item.virtual_device
        kind = item.type.shape, item.type.dtype.name, repr(item.type.quantization), place
        if item.constant is not None:
            return module.constants[item.constant].digest, kind
        return numbers.setdefault(item.name, len(numbers)), kind

    def call(item: Call) -> Hashable:
        callee = module.callee(item.op)
        op = structural_key(callee, module) if isinstance(callee, Function) else item.op
        values = tuple(map(value, item.inputs)), tuple(map(value, item.outputs))
        return op, item.target, repr(item.attrs), values

    params = tuple(map(value, function.params))
    body = tuple(map(call, function.body))
    own = {name: item for name, item in function.attrs.items() if name != "symbol"}
    attrs = tuple(sorted((name, repr(item)) for name, item in own.items()))
    return attrs, params, body, tuple(map(value, function.results))
