"""Limits on the work that a model file may cause, which `--limit-factor` multiplies."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from firmwright.base.errors import ModelError, NotSupportedError, UsageError

LIMIT_FACTOR_VARIABLE: Final = "FIRMWRIGHT_LIMIT_FACTOR"
RAISED_BY: Final = "--limit-factor raises the limit"
TENSOR_BYTES_MAX: Final = 1 << 28
"""A tensor; firmware has memories of kilobytes to megabytes."""
CONSTANT_BYTES_MAX: Final = 1 << 28
"""The constants of a model that are computed or expanded at import, together."""
EXPANDED_CALLS_MAX: Final = 1 << 15
"""Operators of a model whose functions, branches and loop bodies are expanded."""
NESTING_MAX: Final = 64
"""Functions, branches and loops inside one another."""
EVALUATED_CALLS_MAX: Final = 1 << 18
"""Operators that run in an import or evaluation, in all iterations of loops."""
OPERANDS_MAX: Final = 1 << 12
"""Inputs and outputs of one operator."""
_DIGITS_MAX = 9
UNROLLED_MAX: Final = 1 << 16
"""Statements of an unrolled loop."""


def scaled_limit(limit: int) -> int:
    """Return `limit` times the factor; UsageError if that is no positive integer."""
    return limit * limit_factor(os.environ.get(LIMIT_FACTOR_VARIABLE, ""))


@cache
def limit_factor(text: str) -> int:
    if not text:
        return 1
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    if not is_number or int(text) < 1:
        shown = repr(text[:40])
        what = f"the limit factor {shown} is not an integer from 1 to 999,999,999."
        hint = f"set {LIMIT_FACTOR_VARIABLE} to 1 or more, or unset it."
        raise UsageError(what, where=LIMIT_FACTOR_VARIABLE, hint=hint)
    return int(text)


def expansion_limits() -> tuple[int, int]:
    return scaled_limit(EXPANDED_CALLS_MAX), scaled_limit(NESTING_MAX)


@dataclass(slots=True)
class WorkBudget:
    """Adds up amounts of one kind for a model.

    `description` is a clause with the limit as {}.
    """

    limit: int
    description: str
    used: int = 0

    def spend(self, amount: int) -> None:
        """Raise NotSupportedError if the total exceeds the limit."""
        self.used += amount
        limit = scaled_limit(self.limit)
        if self.used > limit:
            what = self.description.format(f"{limit:,}")
            raise NotSupportedError(f"{what} ({RAISED_BY})")


def check_result_bytes(size: int) -> None:
    """Raise NotSupportedError if the result of a node has more bytes than a tensor."""
    if size > scaled_limit(TENSOR_BYTES_MAX):
        raise NotSupportedError(f"a result of {size:,} bytes ({RAISED_BY})")


def check_count(count: int, limit: int, description: str, where: str) -> None:
    """Raise ModelError above a limit; `description` has the count as {}."""
    if count > scaled_limit(limit):
        what = f"{description.format(f'{count:,}')}, more than {scaled_limit(limit):,}."
        raise ModelError(what, where=where, hint=f"{RAISED_BY}.")


def check_expansion(
    bodies: Mapping[str, tuple[int, Sequence[str]]], where: str
) -> None:
    """Raise ModelError if `bodies` are recursive or expand beyond a limit.

    `bodies` has sizes and callees by name.
    """
    calls_max, levels_max = expansion_limits()
    sizes: dict[str, tuple[int, int]] = {}
    for start in bodies:
        # Depth first without recursion: a path of iterators, one for each function.
        path = {} if start in sizes else {start: iter(bodies[start][1])}
        while path:
            current = next(reversed(path))
            own, callees = bodies[current]
            callee = next((name for name in path[current] if name not in sizes), None)
            if callee in path:
                what = f"its call of {callee} is recursive."
                raise ModelError.broken(what, f"{where}: {current}")
            if callee is not None:
                path[callee] = iter(bodies[callee][1])
                continue
            inner = sum(sizes[name][0] for name in callees)
            levels = 1 + max((sizes[name][1] for name in callees), default=0)
            if inner > calls_max or levels > levels_max:
                most = f"{calls_max:,} operators or {levels_max} levels"
                what = f"its branches and loops expand to more than {most}."
                place = f"{where}: {current}"
                raise ModelError(what, where=place, hint=f"{RAISED_BY}.")
            sizes[current] = own + inner, levels
            del path[current]


def constant_budget() -> WorkBudget:
    return WorkBudget(CONSTANT_BYTES_MAX, "constants that expand to more than {} bytes")
