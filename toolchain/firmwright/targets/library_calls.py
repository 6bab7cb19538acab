"""C functions that call a library's function with the values of a layer."""

import re
import textwrap
from collections.abc import Sequence
from functools import partial

from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.requantize import Requantization, per_tensor_quant
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


def input_offsets(call: OpCall) -> list[int]:
    """Return what a library adds to the two operands: their zero points, negated."""
    return [-per_tensor_quant(call.input(index)).zero_point for index in (0, 1)]


def elementwise_arguments(
    call: OpCall, before: Sequence[int], step: Requantization
) -> tuple[str, str]:
    """Return the C arguments before and after the output of an element-wise function.

    Those after it are the output's offset, multiplier, shift, limits and elements.
    """
    after = [step.zero_point, step.multipliers[0], step.shifts[0]]
    after += [step.clamp_min, step.clamp_max, call.output.elements]
    return ", ".join(map(str, before)), ", ".join(map(str, after))
