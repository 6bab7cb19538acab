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
from firmwright.ir.tir.traversal import statements

PARAMS_ALIGNMENT = 16
DEFAULT_SECTION = ".rodata.flash"
"""The section of constants outside constant pools."""


@dataclass(frozen=True, slots=True)
class LinkedConstant:
    """A constant with its C symbol and alignment; a `shared` one is defined in another
    file.
    """

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
    """Return a key for type, bytes and pool; constants with equal keys can share an
    array.
    """
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
    functions = tuple(functions)
    used: dict[str, None] = {}
    widest: dict[str, int] = {}
    for node in (node for function in functions for node in statements(function.body)):
        if isinstance(node, tir.AllocateConst) and is_linked(module, node.constant):
            constant = module.constants[node.constant]
            key = key_of(constant)
            used[node.constant] = None
            # One array serves all its readers, so it has the strictest of their
            # alignments.
            alignment = max(node.buffer.alignment, constant.dtype.size_bytes)
            widest[key] = max(alignment, widest.get(key, 1))
    supply = UniqueNamer((*RESERVED_NAMES, *(function.name for function in functions)))
    sections = {pool.name: pool.section for pool in constant_pools(module)}
    by_key: dict[str, LinkedConstant] = {}
    result: dict[str, LinkedConstant] = {}
    for name in used:
        constant = module.constants[name]
        key = key_of(constant)
        if key not in by_key:
            symbol = shared.get(key) or names.c(supply.unique(name))
            section = sections.get(constant.pool, "") or default_section
            by_key[key] = LinkedConstant(
                constant, symbol, widest[key], key in shared, section
            )
        result[name] = by_key[key]
    return result


# ---- arrays --------------------------------------------------------------------------


def needs_math(constants: Iterable[LinkedConstant]) -> bool:
    """Return whether any constant contains an infinity or NaN, which need <math.h>."""
    return any(
        item.constant.dtype.is_float and not np.isfinite(item.constant.array()).all()
        for item in constants
    )


def format_weights_header(
    interface: ModelInterface, constants: Sequence[LinkedConstant], options: EmitOptions
) -> str:
    """Format `NAME_weights.h`, with the initial states if `options` place them
    there.
    """
    name, upper = interface.names.prefix, interface.names.prefix.upper()
    return _format_file(
        [f"{name}_weights.h: the constants of {name}.", options.spdx, options.banner],
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
    """Format a file of arrays; `macro` sets their attributes, and headers have a
    `guard`.
    """
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
            # The first module with a constant claims it; another one that has it makes
            # it shared.
            if first_module.setdefault(key, index) != index:
                shared[key] = constant
    return dict(sorted(shared.items()))


def shared_symbols(constants: Mapping[str, Constant]) -> dict[str, str]:
    """Return the C symbol of each shared constant by key, as needed by
    `EmitOptions.shared`.
    """
    return {
        key: f"shared_{c.dtype.short}_{c.digest[:16]}" for key, c in constants.items()
    }


def emit_shared_constants(
    constants: Mapping[str, Constant],
    spdx: str = DEFAULT_EMIT_OPTIONS.spdx,
    section: str = DEFAULT_SECTION,
) -> SourceTree:
    head = [
        "shared_constants.c: constants that several models of this image use.",
        spdx,
    ]
    items = [
        LinkedConstant(constants[key], symbol, PARAMS_ALIGNMENT, section=section)
        for key, symbol in shared_symbols(constants).items()
    ]
    return SourceTree(
        {
            "model/shared_constants.c": _format_file(
                head, items, "SHARED_CONST", guard=""
            )
        }
    )


# ---- parameters that are not linked --------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParamsBlock:
    """Concatenated constants and their hash in `data`, with the byte offset of each
    symbol.
    """

    items: tuple[LinkedConstant, ...]
    offsets: Mapping[str, int]
    data: bytes

    def index(self, prefix: str) -> str:
        """Format the block's JSON index; its names are the fields of `struct
        PREFIX_params`.
        """
        rows = [
            {
                "name": item.field(prefix),
                "constant": item.constant.name,
                "dtype": item.constant.dtype.name,
                "shape": list(item.constant.shape),
                "offset": self.offsets[item.symbol],
                "size_bytes": item.constant.size_bytes,
                "sha256": item.constant.digest,
            }
            for item in self.items
        ]
        return json.dumps(
            {"schema": 1, "size_bytes": len(self.data), "params": rows}, indent=2
        )


def build_params_block(items: Iterable[LinkedConstant]) -> ParamsBlock:
    """Concatenate the distinct constants, each aligned to its own alignment or 4
    bytes.
    """
    unique = tuple({item.symbol: item for item in items}.values())
    offsets: dict[str, int] = {}
    data = bytearray()
    for item in unique:
        step = max(4, item.alignment)
        data += bytes(-len(data) % step)
        offsets[item.symbol] = len(data)
        data += item.constant.data
    return ParamsBlock(unique, offsets, with_content_hash(bytes(data)))
