"""The first values of what a model keeps between runs, as C arrays.

In: the interface of a model. Out: one array for each value that is not one byte over and over;
`NAME_reset` sets those. The arrays are linked even where no other constant is: resetting takes
nothing but the pools.
"""

from __future__ import annotations

from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.constant_arrays import format_rows
from firmwright.codegen.model_interface import ModelInterface


def format_state_initializers(interface: ModelInterface, section: str = "") -> str:
    """The arrays, `NAME_initial_FIELD`, in the linker's section of that name if there is one."""
    out = CWriter()
    for kept in interface.state:
        if kept.fill is not None:
            continue
        name = f"{interface.names.prefix}_initial_{kept.field}"
        if section:
            alignment = kept.io.type.dtype.size_bytes
            out.line(f'{interface.names.macro("const")}("{section}", {alignment})')
        out.line(f"static const {kept.c_type} {name}[{kept.io.type.elements}] = {{")
        for row in format_rows(kept.initial):
            out.raw(row)
        out.line("};")
        out.line()
    return out.text()
