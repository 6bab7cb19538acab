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
        more = (
            f" and {len(self.items) - _NAMED} more" if len(self.items) > _NAMED else ""
        )
        what = (
            "the module contains code of its own, C or lowered functions: "
            f"{named}{more}."
        )
        return untrusted_error(what, self.path)
