"""Which code a module text brings along, and whether the user trusts it.

Lowered functions are code too: they become C as written, and proofs of their indices
rely on arithmetic that does not overflow, which only kernels of this package guarantee.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from firmwright.base.trust import trusts_path
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.untrusted_code import UntrustedCode
from firmwright.targets.saved_backend import read_records


def without_trust(module: IRModule, path: Path) -> IRModule:
    """Mark the code of a module from `path`, unless the user trusts that file."""
    items = tuple(dict.fromkeys(_code_of(module)))
    if not items or trusts_path(path):
        return module
    return replace(module, untrusted=UntrustedCode(str(path), items))


def _code_of(module: IRModule) -> Iterator[str]:
    yield from module.files
    for function in module.functions.values():
        if isinstance(function, tir.PrimFunc) and "extern" in function.attrs:
            declared = function.attrs["extern"]
            names = declared if isinstance(declared, tuple) else (declared,)
            yield from (f"{name}()" for name in names)
    yield from (f"functions of the backend {name}" for name in read_records(module))
    if module.results.backend_checks:
        yield "functions in backend_checks"
    if module.results.device_waits:
        yield "functions in device_waits"
    for function in module.functions.values():
        if isinstance(function, tir.PrimFunc):
            yield f"@{function.name}"
