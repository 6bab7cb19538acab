"""Options of the verbs that run firmware: which port, which image, how it is counted.

In: a parser; later the arguments. Out: `open_session` with what they say.
"""

from __future__ import annotations

import argparse
from typing import Any, get_args

from firmwright.artifacts import Variant
from firmwright.base.errors import UsageError
from firmwright.cli.shared_options import add_toolchain_option, positive_int, positive_seconds
from firmwright.flows.model_session import ModelSession, open_session
from firmwright.pipeline import Compilation


def add_session_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("device")
    group.add_argument(
        "--port", metavar="URL", default="", help="serial port or pyserial URL of a flashed board"
    )
    group.add_argument(
        "--baud",
        metavar="RATE",
        type=positive_int,
        default=0,
        help="raise the line to this rate once board and host have met at the usual one",
    )
    group.add_argument(
        "--in-process",
        action="store_true",
        help="on the host: the model as a library in this process, not a process of its own",
    )
    group.add_argument(
        "--timeout",
        metavar="S",
        type=positive_seconds,
        default=None,
        help="seconds for one run (300)",
    )
    add_toolchain_option(group)


def add_variant_option(parser: argparse.ArgumentParser) -> None:
    """Which image of a compilation."""
    parser.add_argument(
        "--variant",
        choices=get_args(Variant),
        default="release",
        help="profile has a probe around every operator, debug fences around the pools too "
        "(release)",
    )


def add_count_instructions_option(parser: argparse.ArgumentParser) -> None:
    """How a measurement counts."""
    parser.add_argument(
        "--count-instructions",
        action="store_true",
        help="count each instruction (QEMU only), and give the core's modelled cycles",
    )


def make_session_opener(args: argparse.Namespace) -> Any:
    """`open_session` with the device's options filled in."""

    chosen = getattr(args, "variant", "release")
    if args.in_process and chosen != "release":
        raise UsageError(
            f"a library in this process has no {chosen} image.", hint="no --in-process."
        )

    def open_it(compiled: Compilation, **more: Any) -> ModelSession:
        in_process = args.in_process and more.get("variant", "release") == "release"
        given = {
            "port": args.port,
            "timeout_s": args.timeout,
            "compiler": args.compiler,
            "variant": chosen,
            "baud": args.baud,
        }
        return open_session(compiled, in_process=in_process, **{**given, **more})

    return open_it
