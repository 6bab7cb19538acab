"""The options of a compilation that say what its C looks like.

In: a parser's group. Out: arguments by the names of `pipeline.Options`.
"""

from __future__ import annotations

import argparse

from firmwright.codegen.code_style import C_STANDARDS, DEFAULT_LICENSE
from firmwright.pipeline import C_APIS


def add_codegen_options(group: argparse._ArgumentGroup) -> None:
    """What the C looks like."""
    group.add_argument(
        "--no-link-params",
        dest="link_params",
        action="store_false",
        default=None,
        help="constants are passed to the model's run, not linked into it",
    )
    group.add_argument(
        "--no-inline-asm",
        dest="inline_asm",
        action="store_false",
        default=None,
        help="portable C instead of inline assembly",
    )
    group.add_argument(
        "--c-standard",
        choices=C_STANDARDS,
        help="the language of sources and project; from c11 on the plan is checked by "
        "_Static_assert (c99)",
    )
    group.add_argument(
        "--section",
        dest="sections",
        metavar="KIND=SECTION",
        action="append",
        type=_section,
        help="the linker's section for the model's functions (code=SECTION) or its constants "
        "(const=SECTION)",
    )
    group.add_argument(
        "--header-only-constants",
        dest="constants_in_header",
        action="store_true",
        default=None,
        help="every constant in NAME_weights.h: also what a state begins with, and what several "
        "models would share",
    )
    group.add_argument(
        "--license",
        metavar="SPDX",
        help=f"what the generated files say of their licence, an SPDX expression ({DEFAULT_LICENSE})",
    )
    group.add_argument(
        "--emit-step-api",
        action="store_true",
        default=None,
        help="also NAME_step, which does one operator a call",
    )
    group.add_argument(
        "--c-api",
        choices=C_APIS,
        help="tvm: microTVM's tvmgen_NAME.h too, in the folder tvm (own)",
    )
    group.add_argument(
        "--tuning",
        metavar="LOG",
        help="what firmwright tune measured: kernels are chosen by counts where there are some",
    )
    group.add_argument("--name", "--prefix", metavar="NAME", help="of the model, and of its C")


def _section(text: str) -> tuple[str, str]:
    kind, _, section = text.partition("=")
    return kind, section
