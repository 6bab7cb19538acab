"""A wrapper with microTVM's C interface: `tvm/tvmgen_NAME.h` and `tvm/tvmgen_NAME.c`.

Code written for `tvmgen_NAME_run` links with the wrapper, which copies inputs and outputs, since
microTVM preserves inputs and accepts unaligned pointers. Features without an equivalent (state,
rows, devices, external constants) raise UsageError.
"""

from __future__ import annotations

from collections.abc import Iterator

from firmwright.artifacts import SourceTree
from firmwright.base.errors import UsageError
from firmwright.codegen.model_interface import ModelInterface
from firmwright.codegen.template_rendering import render_template

FOLDER = "tvm"
OPTION = "--c-api tvm"
_KEYWORDS = {"default_": "default"}
"""TVM's names for models named like a C keyword; `default` is microTVM's usual model name."""


def format_microtvm_files(
    io: ModelInterface, banner: str, spdx: str, *, linked: bool, const_pools: bool
) -> SourceTree:
    """Format both files; `linked` and `const_pools` describe where constants are stored."""
    for feature in _unsupported_features(io, linked=linked, const_pools=const_pools):
        raise UsageError(
            f"microTVM's interface has no place for {feature}.",
            where=io.names.prefix,
            hint=f"leave {OPTION} or that out.",
        )
    name = io.names.prefix
    tvm = _KEYWORDS.get(name, name)
    values = {
        "name": name,
        "NAME": name.upper(),
        "tvm": tvm,
        "TVM": tvm.upper(),
        "banner": banner,
        "spdx": spdx,
        "io": io,
        "workspace_bytes": sum(pool.size_bytes for pool in io.pools),
    }
    files = {f"{FOLDER}/tvmgen_{tvm}{end}": f"tvmgen{end}.j2" for end in (".h", ".c")}
    return SourceTree(
        {path: render_template(template, **values) for path, template in files.items()}
    )


def _unsupported_features(io: ModelInterface, *, linked: bool, const_pools: bool) -> Iterator[str]:
    if not io.in_pools:
        yield "--io-buffers caller: it copies inputs and outputs"
    if io.rows:
        yield "row-streamed inputs"
    if io.devices:
        yield "several devices"
    if io.state or io.has_init:
        yield "state between runs"
    if not linked or const_pools:
        yield "external constants"
