"""Sessions from the arguments that several verbs share."""

import argparse
from typing import Unpack

from firmwright.artifacts import Variant
from firmwright.base.errors import UsageError
from firmwright.boards import Board
from firmwright.device.transport_selection import is_connected
from firmwright.flows.board.model_session import (
    ModelSession,
    SessionOpener,
    SessionOptions,
    open_session,
)
from firmwright.pipeline import Compilation


def make_session_opener(args: argparse.Namespace) -> SessionOpener:
    variant: Variant = getattr(args, "variant", "release")
    if args.in_process and variant != "release":
        raise UsageError(
            f"a library in this process has no {variant} image.",
            hint="no --in-process.",
        )

    def open_it(
        compiled: Compilation, /, **more: Unpack[SessionOptions]
    ) -> ModelSession:
        in_process = args.in_process and more.get("variant", "release") == "release"
        settings: SessionOptions = {
            "in_process": in_process,
            "port": args.port,
            "timeout_s": args.timeout,
            "compiler": args.compiler,
            "variant": variant,
            "baud": args.baud,
        }
        settings.update(more)
        return open_session(compiled, **settings)

    return open_it


def is_absent(args: argparse.Namespace, board: Board) -> bool:
    """Return whether a run can only be modeled: a real board that is not connected."""
    if board.run.kind != "serial" or args.port:
        return False
    return not is_connected(board)
