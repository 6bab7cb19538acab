"""Call targets' hooks, once for functions equal but for names; check the results."""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from firmwright.base.errors import UsageError
from firmwright.base.plugin_calls import plugin_call
from firmwright.base.source_paths import BACKEND_FILES_DIR
from firmwright.ir import tir
from firmwright.ir.bind_requests import bind_constants
from firmwright.ir.core import Attrs
from firmwright.ir.graph.devices import CYCLES_ATTR
from firmwright.ir.graph.nodes import Call, Function, Value, called_functions
from firmwright.ir.graph.patterns import Match
from firmwright.ir.module import AnyFunction, IRModule, Pass
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
    """Call the hook of each target with functions, in the order of the targets."""
    for name in module.targets:
        hook_impl: target_kind.Hook | None = getattr(kind_in(module, name).hooks, hook)
        if hook_impl is None or not functions_on_target(module, name):
            continue
        hook_label = f"`{target_kind.BACKEND_METHODS[hook]}` of target {name}"
        match hook_impl:
            case Pass():
                module = _run_pass_hook(module, name, hook_impl, hook_label)
            case tuple():
                for step in hook_impl:
                    module = _run_pass_hook(module, name, step, hook_label)
            case _:
                module = _call_function_hook(module, name, hook_impl, hook_label)
    return module


def _run_pass_hook(
    module: IRModule, name: str, step: Pass, hook_label: str
) -> IRModule:
    """Run one pass of a hook, which may change only functions of the target `name`."""
    label = f"{hook_label} ({step.name})"
    with plugin_call(label):
        after = step(module)
    check_only_modified(module, after, name, label)
    return after


def check_lowered(module: IRModule) -> IRModule:
    """Remove inlined functions; raise UsageError if a function was not lowered."""
    needed = _needed_functions(module)
    for function in unlowered_functions(module):
        raise UsageError(
            f"no hook of target {target_of(function)} made a kernel of the function "
            f"@{function.name}.",
            where=module.name,
            hint="a backend with `lower` or `generate`, or another --target.",
        )
    remaining: dict[str, AnyFunction] = {}
    for name, func in module.functions.items():
        is_open_region = isinstance(func, Function) and target_of(func) != ""
        if name in needed or not is_open_region:
            remaining[name] = func
    if len(remaining) == len(module.functions):
        return module
    return replace(module, functions=remaining)


def unlowered_functions(module: IRModule) -> Iterator[Function]:
    """Yield the graph functions of targets that are called."""
    for name in _needed_functions(module):
        function = module.functions[name]
        if isinstance(function, Function) and target_of(function):
            yield function


def _needed_functions(module: IRModule) -> Collection[str]:
    roots: list[str] = []
    for name, function in module.functions.items():
        if not target_of(function):
            roots.append(name)
    return reachable_functions(module, sorted(roots))


# ---- Function -> PrimFunc ------------------------------------------------------------


def _call_function_hook(
    module: IRModule, name: str, hook: target_kind.FunctionHook, hook_label: str
) -> IRModule:
    """Replace the functions of target `name` by the kernels that its hook makes.

    The hook is called once for functions that can share a kernel. Functions that only
    functions of the same target call are parts of a region, for which the hook makes
    one kernel.
    """
    target = module.targets[name]
    called = _called_from_outside(module, name)
    lowered: dict[Hashable, target_kind.LoweredFunction] = {}
    for function in functions_on_target(module, name):
        if not isinstance(function, Function) or function.name not in called:
            continue
        key = structural_key(function, module)
        if key not in lowered:
            with plugin_call(f"{hook_label}, for the function @{function.name},"):
                lowered[key] = hook(function, module, target)
        module = _replace_by_kernel(module, function, lowered[key], hook_label)
    return module


def _called_from_outside(module: IRModule, target: str) -> set[str]:
    """Return the functions that graph functions of other targets call."""
    called: set[str] = set()
    for function in module.functions.values():
        if isinstance(function, Function) and target_of(function) != target:
            for call in function.body:
                called.update(called_functions(call))
    return called


def _replace_by_kernel(
    module: IRModule,
    function: Function,
    lowered: target_kind.LoweredFunction,
    hook_label: str,
) -> IRModule:
    """Return the module with a kernel for a function, with its constants and files."""
    _check_params(function, lowered.function, hook_label)
    target = target_of(function)
    cost = _declared_cost(function, module)
    attrs = {**lowered.function.attrs, "target": target, **cost}
    span = function.body[-1].span
    kernel = replace(lowered.function, name=function.name, attrs=attrs, span=span)
    for name, constant in lowered.constants.items():
        if module.constants.get(name, constant) != constant:
            message = f"{hook_label} made the constant @{name} twice, with other bytes."
            raise UsageError(message, where=module.name)
    folder = f"{BACKEND_FILES_DIR}/{module.targets[target].kind}"
    files: dict[str, bytes] = {}
    for name, data in lowered.files.items():
        files[f"{folder}/{name}"] = data
    constants = {**module.constants, **lowered.constants}
    module = replace(module.with_function(kernel), constants=constants)
    values: list[Value | None] = []
    for call in flatten_calls(function, module):
        values += call.inputs
    module = bind_constants(module, values, kernel.name)
    return with_new_files(module, files, f"{hook_label}, for @{function.name},")


def _declared_cost(function: Function, module: IRModule) -> Attrs:
    """Return the attribute with a function's cycles, if the backend declares any."""
    target = module.targets[target_of(function)]
    backend = backend_of(target)
    if backend is None:
        return {}
    calls = tuple(flatten_calls(function, module))
    match = Match(calls, module, target, backend.version, function)
    cycles = modeled_cost(backend, match)
    return {} if cycles is None else {CYCLES_ATTR: cycles}


@dataclass(frozen=True, slots=True)
class _ParamKind:
    """What parameters of function and kernel must share; a scalar has 0 elements."""

    role: str
    dtype: str
    elements: int

    @classmethod
    def of_value(cls, value: Value, role: str) -> Self:
        return cls(role, value.type.dtype.name, value.type.elements)

    @classmethod
    def of_kernel(cls, param: tir.Param) -> Self:
        elements = param.value.elements if isinstance(param.value, tir.Buffer) else 0
        return cls(param.role, param.value.dtype.name, elements)

    def __str__(self) -> str:
        return f"{self.role} {self.dtype}[{self.elements}]"


def _check_params(function: Function, kernel: tir.PrimFunc, hook_label: str) -> None:
    """Raise UsageError if a kernel's parameters are not those of its function."""
    expected = [_ParamKind.of_value(value, "in") for value in function.params]
    expected += [_ParamKind.of_value(value, "out") for value in function.results]
    actual = [_ParamKind.of_kernel(param) for param in kernel.params]
    if actual != expected:
        raise UsageError(
            f"{hook_label} made a kernel of @{function.name} with the parameters "
            f"{_format_params(actual)}, where the function has "
            f"{_format_params(expected)}.",
            hint=(
                "the function's parameters, then its results; constants and workspace "
                "are allocated in the body."
            ),
        )


def _format_params(params: Sequence[_ParamKind]) -> str:
    return ", ".join(map(str, params)) or "none"


# ---- which functions are equal -------------------------------------------------------


def structural_key(function: Function, module: IRModule) -> Hashable:
    """Return an equal key for functions that can share a kernel, if only names differ.

    It contains what a hook may read: types, constants, devices, memory scopes and
    attributes. Tensors are numbered in the order in which they appear, so that their
    names do not matter.
    """
    numbers: dict[str, int] = {}

    def value_key(value: Value | None) -> Hashable:
        if value is None:
            return None
        tensor = value.type
        quantization = repr(tensor.quantization)
        device = value.virtual_device
        kind = (tensor.shape, tensor.dtype.name, quantization, device)
        if value.constant is not None:
            return module.constants[value.constant].digest, kind
        return numbers.setdefault(value.name, len(numbers)), kind

    def call_key(call: Call) -> Hashable:
        callee = module.callee(call.op)
        op = structural_key(callee, module) if isinstance(callee, Function) else call.op
        inputs = tuple(map(value_key, call.inputs))
        outputs = tuple(map(value_key, call.outputs))
        return op, call.target, repr(call.attrs), inputs, outputs

    own_attrs = dict(function.attrs)
    own_attrs.pop("symbol", None)
    params = tuple(map(value_key, function.params))
    body = tuple(map(call_key, function.body))
    results = tuple(map(value_key, function.results))
    return _attrs_key(own_attrs), params, body, results


def _attrs_key(attrs: Attrs) -> Hashable:
    return tuple(sorted((name, repr(attr)) for name, attr in attrs.items()))
