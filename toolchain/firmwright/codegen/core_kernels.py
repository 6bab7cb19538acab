"""The kernels of cores with a target of their own, each core in a C file of its own.

`backend/DEVICE/NAME_DEVICE.c` has the kernels of calls there, and `build.json` beside
it the flags of that core. Without the flags, portable C takes the place of the core's
instructions. The kernels get their constants as arguments from NAME.c.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from firmwright.base.source_paths import BACKEND_FILES_DIR, BUILD_FLAGS_FILE
from firmwright.base.templates import render_template
from firmwright.codegen import helper_functions as helpers
from firmwright.codegen import kernel_printer
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.stmt_printer import EmitContext, StmtPrinter
from firmwright.codegen.used_helpers import UsedHelpers
from firmwright.ir import tir
from firmwright.ir.graph.devices import core_targets


def print_all_kernels(
    context: EmitContext, kernels: Sequence[tir.PrimFunc], main: tir.PrimFunc
) -> tuple[str, Mapping[str, str]]:
    """Return the kernels and declarations in NAME.c, and the files of other cores."""
    own: dict[str, list[tir.PrimFunc]] = {}
    for device in core_targets(context.module):
        own[device] = []
    rest: list[tir.PrimFunc] = []
    for kernel in kernels:
        own.get(str(kernel.attrs.get("target")), rest).append(kernel)
    declared = ""
    files: dict[str, str] = {}
    for device, theirs in own.items():
        if theirs:
            declared += _prototypes(context, theirs, device)
            files |= _core_files(context, theirs, main, device)
    return declared + kernel_printer.print_kernels(context, rest, main), files


def _prototypes(
    context: EmitContext, functions: Sequence[tir.PrimFunc], device: str
) -> str:
    """Print the declarations of the kernels that the C file of a device defines."""
    out = CWriter()
    codes = {function.code: function for function in functions}
    if codes:
        out.line()
        out.comment([f"The kernels of {device}, which its own C file defines."])
    for function in codes.values():
        printer = StmtPrinter(context)
        names = {param.name: param.name for param in function.params}
        out.line(f"{kernel_printer.kernel_head(printer, function, names)};")
    return out.text()


def _core_files(
    context: EmitContext,
    kernels: Sequence[tir.PrimFunc],
    main: tir.PrimFunc,
    device: str,
) -> dict[str, str]:
    """Return the C file of the kernels of one core, and that of its flags."""
    context = replace(context, used=UsedHelpers())
    text = kernel_printer.print_kernels(context, kernels, main)
    used, name, options = context.used, context.names.prefix, context.options
    folder, file = f"{BACKEND_FILES_DIR}/{device}", f"{name}_{device}.c"
    source = render_template(
        "firmwright.codegen",
        "core.c.j2",
        file=file,
        name=name,
        NAME=name.upper(),
        options=options,
        headers=helpers.system_headers(used),
        has_ramfuncs=False,
        kernels=text,
        **helpers.template_values(used, context.names, inline_asm=options.inline_asm),
    )
    flags = dict(options.core_flags).get(device, ())
    if not flags:
        return {f"{folder}/{file}": source}
    flags += helpers.gcc_flags(used, kernels, inline_asm=options.inline_asm)
    data = json.dumps({"flags": list(flags)})
    return {f"{folder}/{file}": source, f"{folder}/{BUILD_FLAGS_FILE}": f"{data}\n"}
