"""Options of the verbs that run firmware: port, variant and measurement."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from firmwright.artifacts import Variant
from firmwright.base.errors import UsageError
from firmwright.cli.option_values import positive_int, positive_seconds
from firmwright.cli.shared_options import add_toolchain_option
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
        help="raise the serial line to this rate after connecting",
    )
    group.add_argument(
        "--in-process",
        action="store_true",
        help="on the host: load the model as a library instead of starting a process",
    )
    group.add_argument(
        "--timeout",
        metavar="S",
        type=positive_seconds,
        default=None,
        help="seconds for one run (default: 300)",
    )
    add_toolchain_option(group)


def add_variant_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--variant",
        choices=get_args(Variant),
        default="release",
        help="profile adds a probe around every operator, debug also guard bytes around the pools "
        "(default: release)",
    )


def add_count_instructions_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--count-instructions",
        action="store_true",
        help="count every instruction (QEMU only) and report modeled cycles",
    )


def make_session_opener(args: argparse.Namespace) -> Any:
    variant = getattr(args, "variant", "release")
    if args.in_process and variant != "release":
        raise UsageError(
            f"a library in this process has no {variant} image.", hint="no --in-process."
        )

    def open_it(compiled: Compilation, **more: Any) -> ModelSession:
        in_process = args.in_process and more.get("variant", "release") == "release"
        settings = {
            "port": args.port,
            "timeout_s": args.timeout,
            "compiler": args.compiler,
            "variant": variant,
            "baud": args.baud,
        }
        return open_session(compiled, in_process=in_process, **{**settings, **more})

    return open_it
