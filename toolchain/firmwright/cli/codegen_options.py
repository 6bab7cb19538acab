"""Options of the generated C."""

from __future__ import annotations

import argparse

from firmwright.cli.option_values import linker_section
from firmwright.codegen.code_style import C_STANDARDS, DEFAULT_LICENSE
from firmwright.pipeline import C_APIS


def add_codegen_options(group: argparse._ArgumentGroup) -> None:
    """Add an option for each field of `pipeline.Options` that affects the generated C."""
    group.add_argument(
        "--no-link-params",
        dest="link_params",
        action="store_false",
        default=None,
        help="pass the constants to the model's run function instead of linking them",
    )
    group.add_argument(
        "--no-inline-asm",
        dest="inline_asm",
        action="store_false",
        default=None,
        help="generate portable C instead of inline assembly",
    )
    group.add_argument(
        "--c-standard",
        choices=C_STANDARDS,
        help="language of sources and project; from c11 on the plan is checked by "
        "_Static_assert (default: c99)",
    )
    group.add_argument(
        "--section",
        dest="sections",
        metavar="KIND=SECTION",
        action="append",
        type=linker_section,
        help="linker section of the model's functions (code=SECTION) or constants (const=SECTION)",
    )
    group.add_argument(
        "--header-only-constants",
        dest="constants_in_header",
        action="store_true",
        default=None,
        help="put every constant into NAME_weights.h, including initial states and constants "
        "that several models could share",
    )
    group.add_argument(
        "--license",
        metavar="SPDX",
        help=f"SPDX license expression in the generated files (default: {DEFAULT_LICENSE})",
    )
    group.add_argument(
        "--emit-step-api",
        action="store_true",
        default=None,
        help="also generate NAME_step, which executes one operator for each call",
    )
    group.add_argument(
        "--c-api",
        choices=C_APIS,
        help="tvm: also generate microTVM's tvmgen_NAME.h in the folder tvm (default: own)",
    )
    group.add_argument("--tuning", metavar="LOG", help="select kernels by this log of `tune`")
    group.add_argument(
        "--name", "--prefix", metavar="NAME", help="name of the model and prefix of its C"
    )
