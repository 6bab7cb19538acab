"""A wrapper with microTVM's C interface: `tvm/tvmgen_NAME.h` and `tvm/tvmgen_NAME.c`.

The wrapper copies inputs and outputs, since microTVM preserves inputs and accepts unaligned
pointers (decision 0064). Features without an equivalent (state, rows, devices, external constants)
raise UsageError.
"""

from collections.abc import Iterator

from firmwright.artifacts import SourceTree
from firmwright.base.errors import UsageError
from firmwright.base.templates import render_template
from firmwright.codegen.stmt_printer import EmitContext

FOLDER = "tvm"
OPTION = "--c-api tvm"
_KEYWORDS = {"default_": "default"}
"""TVM's names for models named like a C keyword; `default` is microTVM's usual model name."""


def format_microtvm_files(context: EmitContext) -> SourceTree:
    io, name = context.interface, context.names.prefix
    for feature in _unsupported_features(context):
        raise UsageError(
            f"microTVM's interface has no place for {feature}.",
            where=name,
            hint=f"leave {OPTION} or that out.",
        )
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
    ends = (".h", ".c")
    return SourceTree(
        {
            f"{FOLDER}/tvmgen_{tvm}{end}": render_template(
                "firmwright.codegen", f"tvmgen{end}.j2", **values
            )
            for end in ends
        }
    )


def _unsupported_features(context: EmitContext) -> Iterator[str]:
    io = context.interface
    if not io.in_pools:
        yield "--io-buffers caller: it copies inputs and outputs"
    if io.rows:
        yield "row-streamed inputs"
    if io.devices:
        yield "several devices"
    if io.state or io.has_init:
        yield "state between runs"
    if not io.linked or context.const_pools:
        yield "external constants"
