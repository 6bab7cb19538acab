"""A wrapper with microTVM's C interface: `tvm/tvmgen_NAME.h` and `tvm/tvmgen_NAME.c`.

The wrapper copies inputs and outputs, since microTVM preserves inputs and accepts
unaligned pointers (decision 0064). Features without an equivalent (state, rows,
devices, external constants) raise UsageError.
"""

from firmwright.artifacts import SourceTree
from firmwright.base.errors import UsageError
from firmwright.base.templates import render_template
from firmwright.codegen.stmt_printer import EmitContext

FOLDER = "tvm"
OPTION = "--c-api tvm"
_KEYWORDS = {"default_": "default"}
"""TVM's names of models called like a C keyword; microTVM's usual one is `default`."""


def format_microtvm_files(context: EmitContext) -> SourceTree:
    io, name = context.interface, context.names.prefix
    unsupported = {
        "--io-buffers caller: it copies inputs and outputs": not io.in_pools,
        "row-streamed inputs": io.rows,
        "several devices": io.devices,
        "state between runs": io.state or io.has_init,
        "external constants": not io.linked or context.const_pools,
    }
    for feature, is_present in unsupported.items():
        if is_present:
            what = f"microTVM's interface has no place for {feature}."
            raise UsageError(what, where=name, hint=f"leave {OPTION} or that out.")
    tvm = _KEYWORDS.get(name, name)
    values = {
        "name": name,
        "NAME": name.upper(),
        "tvm": tvm,
        "TVM": tvm.upper(),
        "options": context.options,
        "io": io,
        "workspace_bytes": sum(pool.size_bytes for pool in io.pools),
    }
    files: dict[str, str | bytes] = {}
    for end in (".h", ".c"):
        text = render_template("firmwright.codegen", f"tvmgen{end}.j2", **values)
        files[f"{FOLDER}/tvmgen_{tvm}{end}"] = text
    return SourceTree(files)
