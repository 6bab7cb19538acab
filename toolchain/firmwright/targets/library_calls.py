"""C functions that call a library's function with the values of a layer."""

import re
import textwrap
from collections.abc import Sequence
from functools import partial

from firmwright.ir import tir
from firmwright.targets.c_text import LINE_COLUMNS, c_function_head
from firmwright.targets.kernel_builder import BackendKernel


def write_library_call(
    kernel: BackendKernel,
    header: str,
    params: Sequence[str],
    statements: str,
    arguments: Sequence[tir.Buffer],
) -> None:
    """Write the kernel's C function of `statements`, and the call of it."""
    head = c_function_head(f"void {kernel.symbol}(", params)
    wrap = partial(
        textwrap.fill,
        width=LINE_COLUMNS,
        initial_indent=" " * 4,
        subsequent_indent=" " * 8,
    )
    lines = []
    for statement in re.split(r"(?<=;)\n", statements):
        line = " ".join(statement.split())
        if line:
            lines.append(wrap(line))
    body = "\n".join(lines)
    headers = "#include <string.h>\n\n" if "mem" in statements else ""
    text = f'{headers}#include "{header}"\n\n{head}\n{{\n{body}\n}}\n'
    kernel.file(f"{kernel.symbol}.c", text)
    kernel.extern(kernel.symbol, list(arguments))
