"""The helpers and types that printed C needs, and the intrinsics that it calls."""

import re
from dataclasses import dataclass, field

from firmwright.base.dtypes import DType
from firmwright.codegen.c_names import ModelNames
from firmwright.ir.tir.intrinsic import Intrinsic

_CALLED = re.compile(r"@(\w+)")


@dataclass(slots=True)
class UsedHelpers:
    """The helpers and types that the printed text needs, by C name, as first used.

    `vectors` are the features of the vectors that loops use.
    """

    intrinsics: dict[str, Intrinsic] = field(default_factory=dict)
    aliases: dict[str, DType] = field(default_factory=dict)
    extremes: dict[str, tuple[str, DType]] = field(default_factory=dict)
    saturations: dict[str, tuple[DType, int]] = field(default_factory=dict)
    loads: dict[str, DType] = field(default_factory=dict)
    stores: dict[str, DType] = field(default_factory=dict)
    math: bool = False
    vectors: set[str] = field(default_factory=set)


def name_called_intrinsics(portable: str, names: ModelNames) -> str:
    """Return the C of an intrinsic with the C names of those that it calls.

    It writes them `@name(...)`.
    """
    return _CALLED.sub(lambda match: names.c(match[1]), portable)
