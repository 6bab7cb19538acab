"""Hand-written C of backends and users: callable functions and their source files.

Functions in a backend's table become intrinsics. Other functions are declared by the kernel that
calls them (attribute `extern`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from firmwright.base.errors import ModelError
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import Intrinsic, IntrinsicTable, Operand
from firmwright.ir.tir.traversal import statements, walk
from firmwright.partitioning.function_targets import functions_for
from firmwright.partitioning.target_hooks import BACKEND_FILES_DIR
from firmwright.targets.backend import Backend
from firmwright.targets.registry import backend_of

_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
BUILD_FLAGS_FILE = "build.json"
"""File in a backend's folder with the compiler flags of its sources."""


def collect_intrinsics(module: IRModule, base: IntrinsicTable) -> IntrinsicTable:
    """Return `base` with the functions of the backends and those that kernels declare."""
    intrinsics: dict[str, Intrinsic] = {}
    for _, backend in module_backends(module):
        intrinsics |= {item.name: item for item in backend.intrinsics}
    for function in module.functions.values():
        if isinstance(function, tir.PrimFunc) and "extern" in function.attrs:
            declared = function.attrs["extern"]
            names = declared if isinstance(declared, tuple) else (declared,)
            evaluated = [n for n in statements(function.body) if isinstance(n, tir.Evaluate)]
            calls = [node.call for node in evaluated if node.call.name in names]
            intrinsics |= {call.name: _extern(call) for call in calls}
    return {**base, **intrinsics} if intrinsics else base


def module_backends(module: IRModule) -> Iterator[tuple[str, Backend]]:
    for name, target in module.targets.items():
        backend = backend_of(target)
        if backend is not None:
            yield name, backend


def _extern(call: tir.IntrinsicCall) -> Intrinsic:
    operands = tuple(
        Operand(f"p{index}", "ptr", arg.buffer.dtype, arg.access)
        if isinstance(arg, tir.AccessPtr)
        else Operand(f"n{index}", "in", arg.dtype)
        for index, arg in enumerate(call.args)
    )

    def meaning(*values: Any) -> NoReturn:
        raise ModelError(
            f"the C function {call.name} cannot be evaluated here.",
            hint="verify against the model file (--reference-model), or with --expect OUT.npz.",
        )

    doc = "A C function of another file."
    return Intrinsic(call.name, operands, meaning, portable="", doc=doc, symbol=call.name)


# ---- files -----------------------------------------------------------------------------------


def add_library_files(module: IRModule) -> IRModule:
    """Add the library sources that the kernels of backends call to the module's files.

    The attribute `backend_checks` lists the library versions that a run checks first, as "function
    version".
    """
    files: dict[str, bytes] = {}
    checks: dict[str, None] = {}
    for name, backend in module_backends(module):
        kernels = [func for func in functions_for(module, name) if isinstance(func, tir.PrimFunc)]
        if kernels:
            files |= _library(module, name, backend, kernels)
            if backend.check:
                checks[f"{backend.check} {backend.data_version}"] = None
    module = module.with_attrs(backend_checks=tuple(checks)) if checks else module
    return replace(module, files={**files, **module.files}) if files else module


def _library(
    module: IRModule, name: str, backend: Backend, kernels: list[tir.PrimFunc]
) -> Mapping[str, bytes]:
    target = module.targets[name]
    symbols = {item.name: item.symbol for item in backend.intrinsics if item.symbol}
    called = {
        symbols[part.name]
        for kernel in kernels
        for part in walk(kernel.body)
        if isinstance(part, tir.IntrinsicCall) and part.name in symbols
    }
    folder = f"{BACKEND_FILES_DIR}/{backend.name}/"
    if backend.check:
        called.add(backend.check)
    for path, data in module.files.items():
        if path.startswith(folder):
            called |= set(_CALLED.findall(data.decode("utf-8", errors="replace")))
    files = dict(backend.c_files(target, frozenset(called)))
    if flags := list(backend.c_flags(target)):
        files[BUILD_FLAGS_FILE] = (json.dumps({"flags": flags}) + "\n").encode()
    return {f"{folder}{file}": data for file, data in files.items()}
