"""The first values of what a model keeps between runs, as C arrays.

In: the interface of a model. Out: one array for each value that is not one byte over and over;
`NAME_reset` sets those. The arrays are linked even where no other constant is: resetting takes
nothing but the pools.
"""

from __future__ import annotations

from firmwright.codegen.cwriter import CWriter
from firmwright.codegen.interface import Interface
from firmwright.codegen.weights import rows


def initial_values(interface: Interface, section: str = "") -> str:
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
        for row in rows(kept.initial):
            out.raw(row)
        out.line("};")
        out.line()
    return out.text()
