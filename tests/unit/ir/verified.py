"""Verification of single functions; the package verifies them in modules only."""

from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.verify import diagnose_prim_func, raise_diagnostics


def verify_prim_func(
    func: tir.PrimFunc, module: IRModule, intrinsics: IntrinsicTable
) -> None:
    """Raise ModelError with the diagnostics if `func` is invalid."""
    raise_diagnostics(diagnose_prim_func(func, module, intrinsics), module.name)
