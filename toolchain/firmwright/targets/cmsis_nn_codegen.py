"""C text of CMSIS-NN calls: one function per kernel, which fills the library's structs.

Source of names, members and their order: the public header arm_nn_types.h.
"""

import textwrap
from collections.abc import Sequence

from firmwright.base.dtypes import INT16, INT32, DType
from firmwright.ir import tir
from firmwright.ir.core import Target
from firmwright.targets import cortex_m
from firmwright.targets.kernel_builder import BackendKernel

_COLUMNS = 100


def core_features(kernel: BackendKernel) -> frozenset[str]:
    """Return the features of the core that runs the library."""
    core = kernel.module.targets.get("cpu", Target("c"))
    return cortex_m.KIND.features(core) if core.kind == "cortex-m" else frozenset()


def dtype_suffix(dtype: DType) -> str:
    """Return the suffix of the library's functions for activations of `dtype`."""
    return "s16" if dtype == INT16 else "s8"


def activation_pointer_type(dtype: DType) -> str:
    return "int16_t *" if dtype == INT16 else "int8_t *"


def c_dims(n: int, h: int, w: int, c: int) -> str:
    return f"{{{n}, {h}, {w}, {c}}}"


def c_shape(shape: Sequence[int]) -> str:
    n, h, w, c = (*(1 for _ in range(4 - len(shape))), *shape)
    return c_dims(n, h, w, c)


def c_tile(values: Sequence[int]) -> str:
    """Return the cmsis_nn_tile initializer, which is (width, height), for (rows, columns)."""
    return f"{{{values[1]}, {values[0]}}}"


def write_wrapper_function(
    kernel: BackendKernel,
    params: Sequence[str],
    lines: Sequence[str],
    arguments: Sequence[tir.Buffer],
) -> None:
    """Write a C file with the function `kernel.symbol`, and the kernel that calls it."""
    head = _head(f"void {kernel.symbol}(", params)
    body = "\n".join(_filled(line, "    ") for line in lines)
    headers = "".join(
        f"#include {name}\n"
        for name, function in (("<string.h>", "mem"),)
        if any(function in line for line in lines)
    )
    between = f"{headers}\n" if headers else ""
    text = f'{between}#include "arm_nnfunctions.h"\n\n{head}\n{{\n{body}\n}}\n'
    kernel.file(f"{kernel.symbol}.c", text)
    kernel.extern(kernel.symbol, list(arguments))


def _head(start: str, params: Sequence[str]) -> str:
    """Return a function head with line breaks between parameters."""
    lines = [start]
    for index, param in enumerate(params):
        word = param + (", " if index + 1 < len(params) else ")")
        if len(lines[-1]) + len(word.rstrip()) > _COLUMNS:
            lines[-1] = lines[-1].rstrip()
            lines.append("    ")
        lines[-1] += word
    return "\n".join(lines)


def _filled(line: str, indent: str) -> str:
    return textwrap.fill(line, _COLUMNS, initial_indent=indent, subsequent_indent=f"{indent}    ")


def workspace_context(
    kernel: BackendKernel, size_bytes: int, name: str = "workspace"
) -> tuple[list[str], str, list[tir.Buffer]]:
    """Return the parameters, initializer and arguments for a cmsis_nn_context."""
    if not size_bytes:
        return [], "{NULL, 0}", []
    # Words: the library keeps int16 and int32 there.
    workspace = kernel.workspace(name, -(-size_bytes // 4), INT32)
    return [f"int32_t *{name}"], f"{{{name}, {size_bytes}}}", [workspace]
