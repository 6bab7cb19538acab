"""Custom operators: their registration, and kernels that call the user's C functions.

The C sources are stored in the module, so that it compiles elsewhere without the user's
files.
"""

import runpy
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import UsageError
from firmwright.base.source_paths import BACKEND_FILES_DIR
from firmwright.ir import tir
from firmwright.ir.core import Target
from firmwright.ir.graph import Call, Function, OpCall
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.attributes.control import CustomAttrs
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.patterns import call_patterns
from firmwright.ir.module import IRModule
from firmwright.ops.custom import CUSTOM_OPS, CustomOp
from firmwright.partitioning.target_resolution import target_of, with_new_files
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.kernel_builder import BackendKernel

CUSTOM_FILES_DIR = f"{BACKEND_FILES_DIR}/custom"
"""Folder of the users' C files in a project."""
CUSTOM_OPS_VARIABLE = "CUSTOM_OPS"
"""Name of the list in a file that defines custom operators."""


def supports_custom_op(domain: str, name: str) -> bool:
    """Return whether a custom operator or a backend's pattern covers the operator."""
    if CUSTOM_OPS.find(domain, name) is not None:
        return True
    attrs = CustomAttrs(domain=domain, name=name, data="")
    for backend in BACKENDS.all().values():
        for entry in backend.table:
            for part in call_patterns(entry.pattern):
                if part.op == "custom" and part.accepts(attrs):
                    return True
    return False


def load_custom_ops(path: Path) -> None:
    """Execute a Python file and register its custom operators."""
    try:
        ops = runpy.run_path(str(path)).get(CUSTOM_OPS_VARIABLE)
    except (OSError, ImportError, SyntaxError, NameError) as error:
        message = f"the custom operators cannot be read: {error}."
        raise UsageError(message, where=str(path)) from error
    if not isinstance(ops, Iterable) or not all(isinstance(op, CustomOp) for op in ops):
        what = (
            f"the file has no list {CUSTOM_OPS_VARIABLE} of "
            "firmwright.ops.custom.CustomOp."
        )
        hint = f"{CUSTOM_OPS_VARIABLE} = [CustomOp(name=..., ...)]."
        raise UsageError(what, where=str(path), hint=hint)
    for op in ops:
        CUSTOM_OPS.register(op)


def lower_custom_ops(module: IRModule) -> IRModule:
    """Replace the calls of registered custom operators by calls of kernels."""
    for function in tuple(module.functions.values()):
        if not isinstance(function, Function) or target_of(function):
            continue
        body: list[Call] = []
        for call in function.body:
            custom_op = _custom_op_for(call, module)
            if custom_op is not None:
                module, call = _lower_call(module, call, custom_op)
            body.append(call)
        if tuple(body) != function.body:
            module = module.with_function(replace(function, body=tuple(body)))
    return module


def _custom_op_for(call: Call, module: IRModule) -> CustomOp | None:
    """Return the registered custom operator of a call; None for other operators."""
    if call.op != "custom":
        return None
    return CUSTOM_OPS.for_call(make_op_call(call, module))


def _lower_call(module: IRModule, call: Call, op: CustomOp) -> tuple[IRModule, Call]:
    """Add a kernel that calls the user's C function; return also the call of it."""
    stem = to_c_identifier(f"custom_{op.name}")
    count = sum(name.startswith(f"{stem}_") for name in module.functions)
    name = f"{stem}_{count}"
    region = Function(name, call.variables, (call,), call.outputs)
    kernel = BackendKernel(region, module, Target("custom"))
    kernel.extern(op.function, _arguments(kernel, make_op_call(call, module), op))
    lowered = kernel.lowered()
    attrs = {**lowered.function.attrs, "schedule": op.function}
    function = replace(lowered.function, attrs=attrs)
    files: dict[str, bytes] = {}
    for file, text in op.sources.items():
        files[f"{CUSTOM_FILES_DIR}/{file}"] = text.encode()
    constants = {**module.constants, **lowered.constants}
    module = replace(module.with_function(function), constants=constants)
    module = with_new_files(module, files, f"the custom operator {op.name}")
    return module, replace(call, op=f"@{name}", inputs=call.variables, attrs=NO_ATTRS)


def _arguments(
    kernel: BackendKernel, call: OpCall, op: CustomOp
) -> list[tir.Buffer | int]:
    """Return the C function's arguments: inputs, outputs, workspace and integers."""
    variables = iter(kernel.inputs)
    arguments: list[tir.Buffer | int] = []
    for index, kind in enumerate(call.inputs):
        constant = call.constant(index)
        if constant is not None:
            data = constant.array()
            arguments.append(kernel.constant(f"c{index}", data, constant.dtype))
        elif kind is not None:
            arguments.append(next(variables))
    arguments += kernel.outputs
    workspace_bytes = op.workspace_bytes(call)
    if workspace_bytes:
        arguments.append(kernel.workspace("workspace", workspace_bytes))
    return [*arguments, *op.int_args(call)]
