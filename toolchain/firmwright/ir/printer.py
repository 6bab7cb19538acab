"""Printer of module text, the exact written form of a module at any stage.

`parse_module(print_module(m)) == m`, down to the last bit of every float and constant.

    firmwright ir 2
    module @NAME
    attrs {...}
    target @NAME = "KIND" {...}
    pool @NAME {...}
    io arena preserve_input stream_input_rows { input %BUFFER = "TENSOR": TYPE ...
      state %BUFFER = "TENSOR": TYPE = @INITIAL ... }
    request %TENSOR "ORIGIN" {device="cpu1", pool="sram", named="y", buffers=[...],
      calls=[...], kernels=[...]}           (each if it is not empty)
    const @NAME = i8[3,3] sha256.HEX        (hand-written: i8[4] [1, 2, 3, 4])
    const @NAME = i8[3,3] in(@POOL) sha256.HEX
    file "PATH" sha256.HEX                  (a C source that a function needs)
    graph @NAME(...) ...                    graph/printer.py
    func @NAME(...) ...                     tir/printer.py
    plan "PLANNER" {...}
    data { sha256.HEX: base64 lines }

The data section holds the bytes of each constant once, under their hash. With
`elide_constants` it is omitted and parsing requires `structure_only`, which fills
constants with zeros. A fragment lacks the first line.
"""

import base64
import hashlib
from dataclasses import fields

from firmwright.base.errors import InternalError
from firmwright.base.tokenizer import format_global, format_local, quote
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.printer import print_graph
from firmwright.ir.module import IoBinding, IRModule, StateTensor
from firmwright.ir.module_attributes import module_attributes
from firmwright.ir.parser import FORMAT_VERSION, REQUEST_FIELDS
from firmwright.ir.parser import parse_module as parse_module
from firmwright.ir.syntax import IRWriter, format_attrs, format_shape, format_type
from firmwright.ir.tir.plan import Plan
from firmwright.ir.tir.printer import print_prim

_DATA_COLUMNS = 96


def print_module(
    module: IRModule, elide_constants: bool = False, *, fragment: bool = False
) -> str:
    """Return `module` as text; `fragment` omits the version line."""
    page = IRWriter()
    if not fragment:
        page.line(f"firmwright ir {FORMAT_VERSION}")
    if not fragment or module.name:
        page.line(f"module {format_global(module.name)}")
    _print_head(module, page)
    for table in (module.constants, module.functions):
        for key, entry in table.items():
            if key != entry.name:
                raise InternalError(
                    f"the entry {entry.name!r} is stored under the name {key!r}"
                )
    for name, constant in module.constants.items():
        shape = format_shape(constant.dtype, constant.shape)
        place = f" in({format_global(constant.pool)})" if constant.pool else ""
        page.put(
            f"const {format_global(name)} = {shape}{place}\nsha256.{constant.digest}"
        )
    for path, data in module.files.items():
        page.line(f"file {quote(path)} sha256.{_digest(data)}")
    for func in module.functions.values():
        page.line()
        if isinstance(func, Function):
            print_graph(func, page)
        else:
            print_prim(func, page)
    if module.plan is not None:
        _print_plan(module.plan, page)
    if not elide_constants and (module.constants or module.files):
        _print_data(module, page)
    return page.text()


def _print_head(module: IRModule, page: IRWriter) -> None:
    if attributes := module_attributes(module):
        page.put(f"attrs {format_attrs(attributes)}")
    for name, target in module.targets.items():
        attrs = dict(target.attrs)
        if len(attrs) != len(target.attrs):
            raise InternalError(f"target {target} has a duplicate attribute")
        page.put(
            f"target {format_global(name)} = {quote(target.kind)} {format_attrs(attrs)}"
        )
    for pool in module.pools:
        attrs = {}
        for field in fields(pool):
            value = getattr(pool, field.name)
            if field.name != "name" and value != getattr(PoolInfo(""), field.name):
                attrs[field.name] = value
        page.put(f"pool {format_global(pool.name)} {format_attrs(attrs)}")
    if module.io != IoBinding():
        _print_io(module.io, page)
    for request in module.requests:
        named = {name: getattr(request, name) for name in REQUEST_FIELDS}
        attrs = {name: value for name, value in named.items() if value}
        head = f"request {format_local(request.tensor)} {quote(request.origin.value)}"
        page.put(f"{head} {format_attrs(attrs)}")


def _print_io(io: IoBinding, page: IRWriter) -> None:
    keep = " preserve_input" if io.preserve_input else ""
    rows = " stream_input_rows" if io.stream_input_rows else ""
    with page.block(f"io {io.mode}{keep}{rows}"):
        for kind, tensors in (
            ("input", io.inputs),
            ("output", io.outputs),
            ("state", io.state),
        ):
            for tensor in tensors:
                names = f"{format_local(tensor.buffer)} = {quote(tensor.name)}"
                text = f"{kind} {names}:\n{format_type(tensor.type)}"
                if isinstance(tensor, StateTensor):
                    text += f" =\n{format_global(tensor.initial)}"
                page.put(text)


def _print_plan(plan: Plan, page: IRWriter) -> None:
    page.line()
    with page.block(f"plan {quote(plan.planner)} lower_bound {plan.lower_bound_bytes}"):
        for pool, size in plan.pool_bytes.items():
            page.line(f"pool {format_global(pool)} {size}")
        for b in plan.buffers:
            live = ",\n".join(f"{r.first}..{r.end}" for r in b.live)
            pools = ",\n".join(map(format_global, b.pools))
            name = format_local(b.name)
            page.put(
                f"buffer {name} {b.kind} {b.size_bytes} align({b.alignment})\n"
                f"live({live})\npools({pools})"
            )
        for name, where in plan.placements.items():
            place = f"{format_global(where.pool)} + {where.offset}"
            page.line(f"place {format_local(name)} at {place}")
        for c in plan.conflicts:
            names = f"{format_local(c.a)} {format_local(c.b)}"
            text = f"conflict {names} ({c.lo}, {c.hi})"
            if c.modulus or c.residue:
                text += f" mod({c.modulus}, {c.residue})"
            page.line(text)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _print_data(module: IRModule, page: IRWriter) -> None:
    chunks = {c.digest: c.data for c in module.constants.values()}
    chunks |= {_digest(data): data for data in module.files.values()}
    page.line()
    with page.block("data"):
        for digest, data in chunks.items():
            page.line(f"sha256.{digest}:")
            text = base64.b64encode(data).decode("ascii")
            with page.indent():
                for start in range(0, len(text), _DATA_COLUMNS):
                    page.line(text[start : start + _DATA_COLUMNS])
