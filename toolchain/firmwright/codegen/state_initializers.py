"""Initial values of state tensors as C arrays.

Values that repeat one byte need no array; `NAME_reset` fills them. The arrays are linked even if
other constants are not, because `NAME_reset` takes only the pools.
"""

from __future__ import annotations

from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.constant_arrays import format_rows
from firmwright.codegen.model_interface import ModelInterface


def format_state_initializers(interface: ModelInterface, section: str = "") -> str:
    """Format the arrays `NAME_initial_FIELD`, placed in `section` if one is given."""
    out = CWriter()
    for tensor in interface.state:
        if tensor.fill is not None:
            continue
        name = f"{interface.names.prefix}_initial_{tensor.field}"
        if section:
            alignment = tensor.io.type.dtype.size_bytes
            out.line(f'{interface.names.macro("const")}("{section}", {alignment})')
        out.line(f"static const {tensor.c_type} {name}[{tensor.io.type.elements}] = {{")
        for row in format_rows(tensor.initial):
            out.raw(row)
        out.line("};")
        out.line()
    return out.text()
