"""The style of generated C: language standard, linker sections, license and location of constants.

Styles change how the C is written, never its results.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from firmwright.base.errors import UsageError

C_STANDARDS = ("c99", "c11", "c17", "gnu99", "gnu11", "gnu17")
SECTION_KINDS = ("code", "const")
DEFAULT_LICENSE = "LicenseRef-Model-Owner"
"""The default license of generated files, which the model's owner decides."""

_SECTION = re.compile(r"[\w.$-]+", re.ASCII)
_LICENSE = re.compile(r"[A-Za-z0-9.+() -]*[A-Za-z0-9.+)-]")


@dataclass(frozen=True, slots=True)
class CodeStyle:
    """Options of C style; `code` and `const` are linker sections, "" for the defaults.

    `license` is an SPDX expression. With `constants_in_header`, the model's header of constants
    includes shared constants and initial states.
    """

    c_standard: str = "c99"
    code: str = ""
    const: str = ""
    license: str = DEFAULT_LICENSE
    constants_in_header: bool = False

    @property
    def has_static_assert(self) -> bool:
        return not self.c_standard.endswith("99")

    @property
    def spdx(self) -> str:
        return f"SPDX-License-Identifier: {self.license}"


DEFAULT_STYLE = CodeStyle()


class CodeStyleOptions(Protocol):
    """The options from which a style is built, with the names in `pipeline.Options`."""

    @property
    def c_standard(self) -> str: ...
    @property
    def sections(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def license(self) -> str: ...
    @property
    def constants_in_header(self) -> bool: ...


def make_code_style(asked: CodeStyleOptions) -> CodeStyle:
    """Build the style from options; raise UsageError for invalid ones."""
    if asked.c_standard not in C_STANDARDS:
        raise UsageError(
            f"invalid --c-standard {asked.c_standard!r}.", hint=f"one of {', '.join(C_STANDARDS)}."
        )
    if asked.license and not _LICENSE.fullmatch(asked.license):
        raise UsageError(
            f"invalid --license {asked.license!r}.",
            hint="an SPDX expression, such as MIT or LicenseRef-Our-Company.",
        )
    sections = _sections(asked.sections)
    return CodeStyle(
        asked.c_standard,
        sections.get("code", ""),
        sections.get("const", ""),
        asked.license or DEFAULT_LICENSE,
        asked.constants_in_header,
    )


def _sections(asked: tuple[tuple[str, str], ...]) -> dict[str, str]:
    sections: dict[str, str] = {}
    for kind, section in asked:
        if kind not in SECTION_KINDS or not _SECTION.fullmatch(section):
            raise UsageError(
                f"invalid --section {f'{kind}={section}'!r}.",
                hint="code=SECTION or const=SECTION, such as const=.rodata.model.",
            )
        if sections.setdefault(kind, section) != section:
            raise UsageError(f"--section gives two sections for {kind}.", hint="one of them.")
    return sections


def make_common_code_style(asked: Sequence[CodeStyleOptions]) -> CodeStyle:
    """Return the style that all models of a firmware share; raise UsageError if they differ."""
    rules = [make_code_style(one) for one in asked]
    if any(one != rules[0] for one in rules):
        raise UsageError(
            "all models of a firmware need the same C style.",
            hint="use one --c-standard, --section, --license and --header-only-constants for all.",
        )
    return rules[0]
