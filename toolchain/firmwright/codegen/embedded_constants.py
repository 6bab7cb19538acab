"""Large constants as a binary file that the assembler includes in an ELF object.

For each MB of floats, gcc 12 takes 0.7 s and 50 MB of memory to read C arrays.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from firmwright.artifacts import SourceTree
from firmwright.base.templates import render_template
from firmwright.codegen import constant_arrays
from firmwright.codegen.constant_arrays import LinkedConstant
from firmwright.codegen.emit_options import EmitOptions
from firmwright.codegen.model_interface import ModelInterface

_LARGE_BYTES: Final = 1 << 16
"""The size from which a constant is embedded; smaller ones take no time to compile."""


def format_files(
    interface: ModelInterface, constants: Sequence[LinkedConstant], options: EmitOptions
) -> SourceTree:
    """Return NAME_weights.h, which declares large constants, and what defines them.

    The definitions are assembly in NAME_constants.c, with the bytes of
    NAME_constants.bin, whose hash in NAME_constants.c makes caches of objects notice
    other bytes. The tree is empty if there are no large constants.
    """
    declared: list[LinkedConstant] = []
    embedded: list[LinkedConstant] = []
    for item in constants:
        is_large = item.constant.size_bytes >= _LARGE_BYTES and not item.shared
        declared.append(replace(item, shared=item.shared or is_large))
        if is_large:
            embedded.append(item)
    if not embedded:
        return SourceTree({})
    data = b"".join(item.constant.data for item in embedded)
    name = interface.names.prefix
    source = render_template(
        "firmwright.codegen",
        "embedded_constants.c.j2",
        name=name,
        options=options,
        constants=embedded,
        digest=hashlib.sha256(data).hexdigest(),
    )
    weights = constant_arrays.format_weights_header(interface, declared, options)
    return SourceTree(
        {
            f"model/{name}_weights.h": weights,
            f"model/{name}_constants.c": source,
            f"model/{name}_constants.bin": data,
        }
    )
