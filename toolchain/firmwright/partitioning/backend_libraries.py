"""Hand-written C of backends and users: callable functions and their source files.

Functions in a backend's table are intrinsics; a kernel's attribute `extern` declares
others.
"""

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from firmwright.base.errors import ModelError, PluginError
from firmwright.base.source_paths import BACKEND_FILES_DIR, BUILD_FLAGS_FILE
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    IntrinsicFamilies,
    IntrinsicsOnUse,
    IntrinsicTable,
    Operand,
)
from firmwright.ir.tir.traversal import statements, walk
from firmwright.partitioning.engine_instances import engine_device
from firmwright.partitioning.target_hooks import unlowered_functions
from firmwright.partitioning.target_resolution import (
    check_sources,
    functions_on_target,
    with_new_files,
)
from firmwright.targets.backend import Backend
from firmwright.targets.backend_calls import library_sources
from firmwright.targets.saved_backend import (
    backend_in,
    make_record,
    read_records,
    with_records,
)

_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
"""A C identifier before a parenthesis: a call, or anything that looks like one."""


def collect_intrinsics(module: IRModule, base: IntrinsicTable) -> IntrinsicTable:
    """Return `base` with the functions of backends and those that kernels declare."""
    table = _IntrinsicCollector(module.name, base)
    for name, backend in module_backends(module):
        for item in backend.intrinsics:
            table.add(item, f"the backend {name}")
    for function in module.functions.values():
        if isinstance(function, tir.PrimFunc) and "extern" in function.attrs:
            for call in _extern_calls(function):
                table.add(_extern(call), f"the kernel @{function.name}")
    return table.merged() if table.symbols else base


def _extern_calls(function: tir.PrimFunc) -> Iterator[tir.IntrinsicCall]:
    """Yield the calls of the functions that a kernel's attribute `extern` declares."""
    declared = function.attrs["extern"]
    names = declared if isinstance(declared, tuple) else (declared,)
    for node in statements(function.body):
        if isinstance(node, tir.Evaluate) and node.call.name in names:
            yield node.call


@dataclass(frozen=True, slots=True)
class _IntrinsicCollector:
    """Intrinsics by name; a name has one meaning, a C symbol one declaration."""

    module: str
    base: IntrinsicTable
    added: dict[str, Intrinsic] = field(default_factory=dict)
    symbols: dict[str, tuple[Intrinsic, str]] = field(default_factory=dict)
    """The first intrinsic of each C function, and its origin."""

    def add(self, item: Intrinsic, origin: str) -> None:
        """Add an intrinsic of `origin`; PluginError if it contradicts another one."""
        symbol = item.symbol or item.name
        same_name = self.base.get(item.name) or self.added.setdefault(item.name, item)
        same_symbol, other = self.symbols.setdefault(symbol, (same_name, origin))
        if _declaration(item) != _declaration(same_symbol):
            problem = f"and {other} declare the function {symbol}"
            problem += " with different parameters"
        elif _meaning(item) != _meaning(same_name):
            problem = f"defines the intrinsic {item.name}"
            problem += ", which exists with another meaning"
        else:
            return
        hint = (
            "another name, such as `kernel.symbol`, or one with the backend's name as "
            "a prefix."
        )
        raise PluginError(f"{origin} {problem}.", where=self.module, hint=hint)

    def merged(self) -> IntrinsicTable:
        known = {name: partial(self.base.__getitem__, name) for name in self.base}
        return IntrinsicsOnUse(lambda: IntrinsicFamilies(self.added, known))


def _declaration(item: Intrinsic) -> Hashable:
    """Return a key that is equal for intrinsics with the same C declaration."""
    operands: list[tuple[bool, str, str]] = []
    for operand in item.operands:
        is_pointer = operand.kind == "ptr"
        operands.append((is_pointer, operand.dtype.name, operand.access))
    return item.header, repr(item.result), tuple(operands)


def _meaning(item: Intrinsic) -> Hashable:
    """Return a key that is equal for intrinsics that compute the same in the same text.

    A plug-in that is loaded twice makes equal functions that are not identical; their
    names are.
    """
    function = getattr(item.meaning, "__qualname__", item.meaning)
    return item.symbol, item.portable, tuple(sorted(item.text.items())), function


def module_backends(module: IRModule) -> Iterator[tuple[str, Backend]]:
    """Yield the names of the targets that have a backend, with it."""
    for name in module.targets:
        backend = backend_in(module, name)
        if backend is not None:
            yield name, backend


def _extern(call: tir.IntrinsicCall) -> Intrinsic:
    """Return the intrinsic of a C function with parameters of the arguments' types."""
    operands: list[Operand] = []
    for index, arg in enumerate(call.args):
        if isinstance(arg, tir.AccessPtr):
            operands.append(Operand(f"p{index}", "ptr", arg.buffer.dtype, arg.access))
        else:
            operands.append(Operand(f"n{index}", "in", arg.dtype))

    def meaning(*values: object) -> NoReturn:
        what = f"the C function {call.name} cannot be evaluated here."
        hint = (
            "verify against the model file (--reference-model), or with --expect "
            "OUT.npz."
        )
        raise ModelError(what, hint=hint)

    doc = "A C function of another file."
    return Intrinsic(
        call.name, tuple(operands), meaning, portable="", doc=doc, symbol=call.name
    )


# ---- files ---------------------------------------------------------------------------


def add_library_files(module: IRModule) -> IRModule:
    """Add the library sources that the kernels of backends call to the module's files.

    The results `backend_checks` and `device_waits` name the functions that a run calls
    for them.
    """
    check_sources(module.files, "the module", module.name)
    checks: dict[str, None] = {}
    for name, backend in module_backends(module):
        kernels = _kernels(module, name)
        if kernels:
            files = _library(module, name, backend, kernels)
            module = with_new_files(module, files, f"the library of target {name}")
            if backend.check:
                checks[f"{backend.check} {backend.data_version}"] = None
    results = module.results
    waits = find_waits(module)
    if waits:
        results = replace(results, device_waits=tuple(waits.items()))
    if checks:
        results = replace(results, backend_checks=tuple(checks))
    return replace(module, results=results)


def find_waits(module: IRModule) -> dict[str, str]:
    """Return the C functions that wait for the calls in flight, by device."""
    waits: dict[str, str] = {}
    for name, backend in module_backends(module):
        if backend.wait:
            waits[engine_device(module, name)] = backend.wait
    return waits


def generated_files(module: IRModule) -> frozenset[str]:
    """Return the C files of single regions."""
    generated = set(module.files)
    for record in read_records(module).values():
        generated.difference_update(record.files)
    return frozenset(generated)


def _kernels(module: IRModule, name: str) -> list[tir.PrimFunc]:
    kernels: list[tir.PrimFunc] = []
    for func in functions_on_target(module, name):
        if isinstance(func, tir.PrimFunc):
            kernels.append(func)
    return kernels


def with_backend_records(module: IRModule) -> IRModule:
    """Record the backends of a lowered module, with their kernels' library files."""
    if not module.is_started or next(unlowered_functions(module), None):
        return module
    records = read_records(module)
    for name, backend in module_backends(module):
        kernels = _kernels(module, name)
        files = _library(module, name, backend, kernels)
        if files or name not in records:
            symbols = _called_functions(module, name, backend, kernels)
            own = _called_intrinsics(backend, kernels)
            target = module.targets[name]
            records[name] = make_record(target, backend, own, tuple(files), symbols)
            module = with_new_files(module, files, f"the library of target {name}")
    return with_records(module, records)


def _library(
    module: IRModule, name: str, backend: Backend, kernels: list[tir.PrimFunc]
) -> Mapping[str, bytes]:
    """Return the library files of the kernels that the module does not have."""
    target = module.targets[name]
    called = _called_functions(module, name, backend, kernels)
    records = read_records(module)
    if name in records and called <= records[name].symbols:
        return {}
    sources = library_sources(backend, target, called)
    folder = _folder(backend)
    files: dict[str, bytes] = {}
    for file, data in sources.files.items():
        files[f"{folder}{file}"] = data
    if sources.flags:
        flags = json.dumps({"flags": list(sources.flags)})
        files[f"{folder}{BUILD_FLAGS_FILE}"] = f"{flags}\n".encode()
    return files


def _folder(backend: Backend) -> str:
    return f"{BACKEND_FILES_DIR}/{backend.name}/"


def _called_intrinsics(
    backend: Backend, kernels: list[tir.PrimFunc]
) -> list[Intrinsic]:
    """Return the intrinsics of the backend's table that the kernels call."""
    names: set[str] = set()
    for kernel in kernels:
        for part in walk(kernel.body):
            if isinstance(part, tir.IntrinsicCall):
                names.add(part.name)
    return [item for item in backend.intrinsics if item.name in names]


def _called_functions(
    module: IRModule, name: str, backend: Backend, kernels: list[tir.PrimFunc]
) -> frozenset[str]:
    """Return the C functions that kernels and generated files may need."""
    called: set[str] = set()
    for item in _called_intrinsics(backend, kernels):
        if item.symbol:
            called.add(item.symbol)
    if backend.check:
        called.add(backend.check)
    records = read_records(module)
    recorded = records[name].files if name in records else ()
    for path, data in module.files.items():
        if path.startswith(_folder(backend)) and path not in recorded:
            called |= set(_CALLED.findall(data.decode("utf-8", errors="replace")))
    return frozenset(called)
