"""A constant that describes the model to code that handles many models: `NAME_descriptor.c`."""

from firmwright.base.errors import UsageError
from firmwright.base.templates import render_template
from firmwright.codegen.c_writer import format_c_string
from firmwright.codegen.stmt_printer import EmitContext


def format_descriptor(context: EmitContext) -> dict[str, str]:
    """Return the files of the descriptor, if the options request it."""
    io, name, options = context.interface, context.names.prefix, context.options
    if not options.emit_descriptor:
        return {}
    if io.rows or io.devices or not io.linked or context.const_pools:
        what = "a descriptor cannot describe row-streamed inputs, devices or external constants."
        raise UsageError(what, where=name, hint="omit --emit-descriptor or the other option.")
    values = {"name": name, "NAME": name.upper(), "io": io, "c_string": format_c_string}
    names = {"firmwright_model.h": "firmwright_model.h.j2"}
    names |= {f"{name}_descriptor.{end}": f"descriptor.{end}.j2" for end in "ch"}
    return {
        f"model/{file}": render_template("firmwright.codegen", template, options=options, **values)
        for file, template in names.items()
    }
