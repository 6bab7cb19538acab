"""Code of a module text, part of a program only if the user trusts the file."""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.base.errors import UsageError
from firmwright.base.trust import untrusted_error

_NAMED = 6


@dataclass(frozen=True, slots=True)
class UntrustedCode:
    """The path of a module text, and its code: C files, functions, saved backends."""

    path: str
    items: tuple[str, ...]

    def error(self) -> UsageError:
        named = ", ".join(self.items[:_NAMED])
        if len(self.items) > _NAMED:
            named += f" and {len(self.items) - _NAMED} more"
        what = f"the module contains code of its own, C or lowered functions: {named}."
        return untrusted_error(what, self.path)
