"""Python and numpy functions for the binary operators except division and remainder."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

BinaryFunction: TypeAlias = Callable[[Any, Any], Any]

SCALAR_FUNCTIONS: Mapping[str, BinaryFunction] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
}
ARRAY_FUNCTIONS: Mapping[str, BinaryFunction] = {
    **SCALAR_FUNCTIONS,
    "min": np.minimum,
    "max": np.maximum,
}
