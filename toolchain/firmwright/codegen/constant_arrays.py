"""Constants as C arrays, or as the parameter block of a model that links no constants.

Constants of several models are declared in each header, and defined by
`emit_shared_constants`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from firmwright.artifacts import SourceTree
from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.templates import render_template
from firmwright.codegen.array_literals import format_rows
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.c_writer import format_comment, format_lines
from firmwright.codegen.emit_options import DEFAULT_EMIT_OPTIONS, EmitOptions
from firmwright.codegen.model_interface import RESERVED_NAMES, ModelInterface
from firmwright.ir import tir
from firmwright.ir.constant_pools import constant_pools, is_linked, with_content_hash
from firmwright.ir.core import Constant
from firmwright.ir.module import IRModule
from firmwright.ir.program_record import keeps_constants_apart
from firmwright.passes.tir.externalize_constants import linked_constants

PARAMS_ALIGNMENT = 16
DEFAULT_SECTION = ".rodata.flash"
"""The section of constants outside constant pools."""


@dataclass(frozen=True, slots=True)
class LinkedConstant:
    """A constant, its C symbol and alignment; another file defines `shared` ones."""

    constant: Constant
    symbol: str
    alignment: int
    shared: bool = False
    section: str = DEFAULT_SECTION

    def field(self, prefix: str) -> str:
        return self.symbol.removeprefix(f"{prefix}_")

    @property
    def elements(self) -> int:
        return self.constant.size_bytes // self.constant.dtype.size_bytes


def array_key(constant: Constant) -> str:
    """Return a key for type, bytes and pool; constants with equal keys are shared."""
    place = f":{constant.pool}" if constant.pool else ""
    return f"{constant.dtype.name}:{constant.digest}{place}"


def collect_linked_constants(
    module: IRModule,
    functions: Iterable[tir.PrimFunc],
    names: ModelNames,
    shared: Mapping[str, str],
    default_section: str = DEFAULT_SECTION,
) -> dict[str, LinkedConstant]:
    """Return the linked constants that `functions` use, by name.

    Equal ones share an entry, unless other weights may differ.
    """
    apart = keeps_constants_apart(module)
    key_of: Callable[[Constant], str] = attrgetter("name") if apart else array_key
    reserved = list(RESERVED_NAMES)
    used: dict[str, None] = {}
    widest: dict[str, int] = {}
    for function in functions:
        reserved.append(function.name)
        for node in linked_constants(function):
            if not is_linked(module, node.constant):
                continue
            constant = module.constants[node.constant]
            key = key_of(constant)
            used[node.constant] = None
            # One array serves all its readers: it has their strictest alignment.
            alignment = max(node.buffer.alignment, constant.dtype.size_bytes)
            widest[key] = max(alignment, widest.get(key, 1))
    supply = UniqueNamer(reserved)
    sections = {pool.name: pool.section for pool in constant_pools(module)}
    by_key: dict[str, LinkedConstant] = {}
    result: dict[str, LinkedConstant] = {}
    for name in used:
        constant = module.constants[name]
        key = key_of(constant)
        if key not in by_key:
            symbol = shared.get(key) or names.c(supply.unique(name))
            by_key[key] = LinkedConstant(
                constant,
                symbol,
                alignment=widest[key],
                shared=key in shared,
                section=sections.get(constant.pool, "") or default_section,
            )
        result[name] = by_key[key]
    return result


# ---- arrays --------------------------------------------------------------------------


def needs_math(constants: Iterable[LinkedConstant]) -> bool:
    """Return whether any constant contains an infinity or NaN, which need <math.h>."""
    for constant in [item.constant for item in constants]:
        if constant.dtype.is_float and not np.isfinite(constant.array()).all():
            return True
    return False


def format_weights_header(
    interface: ModelInterface, constants: Sequence[LinkedConstant], options: EmitOptions
) -> str:
    """Format `NAME_weights.h`, with initial states if `options` place them there."""
    name, upper = interface.names.prefix, interface.names.prefix.upper()
    title = f"{name}_weights.h: the constants of {name}."
    return _format_file(
        [title, options.spdx, options.banner],
        constants,
        f"{upper}_CONST",
        guard=f"{upper}_WEIGHTS_H",
        io=interface,
        options=options,
        name=name,
        NAME=upper,
    )


def _format_file(
    head: Sequence[str], constants: Sequence[LinkedConstant], macro: str, **more: object
) -> str:
    """Format a file of arrays with attributes `macro`; headers have a `guard`."""
    return render_template(
        "firmwright.codegen",
        "constants.c.j2",
        head=head,
        constants=constants,
        macro=macro,
        needs_math=needs_math(constants),
        format_rows=format_rows,
        c_comment=format_comment,
        wrap=lambda text: format_lines(text, 0),
        **more,
    )


# ---- constants of several models -----------------------------------------------------


def find_shared_constants(modules: Sequence[IRModule]) -> dict[str, Constant]:
    first_module: dict[str, int] = {}
    shared: dict[str, Constant] = {}
    for index, module in enumerate(modules):
        for constant in module.constants.values():
            key = array_key(constant)
            # The first module with a constant claims it; another one makes it shared.
            if first_module.setdefault(key, index) != index:
                shared[key] = constant
    return dict(sorted(shared.items()))


def shared_symbols(constants: Mapping[str, Constant]) -> dict[str, str]:
    """Return the C symbol of each shared constant by key, for `EmitOptions.shared`."""
    symbols: dict[str, str] = {}
    for key, constant in constants.items():
        symbols[key] = f"shared_{constant.dtype.short}_{constant.digest[:16]}"
    return symbols


def emit_shared_constants(
    constants: Mapping[str, Constant],
    spdx: str = DEFAULT_EMIT_OPTIONS.spdx,
    section: str = DEFAULT_SECTION,
) -> SourceTree:
    title = "shared_constants.c: constants that several models of this image use."
    items: list[LinkedConstant] = []
    for key, symbol in shared_symbols(constants).items():
        item = LinkedConstant(constants[key], symbol, PARAMS_ALIGNMENT, section=section)
        items.append(item)
    text = _format_file([title, spdx], items, "SHARED_CONST", guard="")
    return SourceTree({"model/shared_constants.c": text})


# ---- parameters that are not linked --------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParamsBlock:
    """Concatenated constants and their hash in `data`, and the symbols' offsets."""

    items: tuple[LinkedConstant, ...]
    offsets: Mapping[str, int]
    data: bytes

    def index(self, prefix: str) -> str:
        """Format the JSON index; names are those of `struct PREFIX_params`."""
        rows: list[dict[str, object]] = []
        for item in self.items:
            constant = item.constant
            row: dict[str, object] = {
                "name": item.field(prefix),
                "constant": constant.name,
                "dtype": constant.dtype.name,
                "shape": list(constant.shape),
                "offset": self.offsets[item.symbol],
                "size_bytes": constant.size_bytes,
                "sha256": constant.digest,
            }
            rows.append(row)
        index = {"schema": 1, "size_bytes": len(self.data), "params": rows}
        return json.dumps(index, indent=2)


def build_params_block(items: Iterable[LinkedConstant]) -> ParamsBlock:
    """Concatenate distinct constants, aligned to their alignment, at least 4 bytes."""
    unique = tuple({item.symbol: item for item in items}.values())
    offsets: dict[str, int] = {}
    data = bytearray()
    for item in unique:
        step = max(4, item.alignment)
        data += bytes(-len(data) % step)
        offsets[item.symbol] = len(data)
        data += item.constant.data
    return ParamsBlock(unique, offsets, with_content_hash(bytes(data)))
