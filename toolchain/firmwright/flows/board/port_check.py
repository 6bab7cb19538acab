"""Compiles and links a board's start-up code and drivers with a one-operator model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.dtypes import FLOAT32
from firmwright.base.errors import BoardError, ToolFailedError, ToolMissingError
from firmwright.boards import Board
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.model.compilation import compile_for
from firmwright.ir.graph import Call, Function, TensorType, Value
from firmwright.ir.module import IRModule


@dataclass(frozen=True, slots=True)
class PortCheck:
    """The flash bytes of the firmware without the model, or why it was not built."""

    flash_bytes: int | None = None
    missing_tool: str = ""
    export_only: str = ""


def check_port(board: Board, board_dirs: Sequence[Path]) -> PortCheck:
    """Build the smallest firmware for the board.

    Raises:
        BoardError: the C of the port does not compile or link with the data of the
            board file.
        DoesNotFitError: the board's memory is too small for any model.
    """
    if board.export_only:
        return PortCheck(export_only=board.export_only)
    network = _smallest_network()
    compiled = compile_for(network, board.name, board_dirs=tuple(board_dirs))
    try:
        image = build_image(compiled)
    except ToolMissingError as error:
        return PortCheck(missing_tool=error.what)
    except ToolFailedError as error:
        what = "the start-up code and drivers do not compile for this board"
        what += f": {error.what}"
        hint = (
            "correct the keys of [console], [counter], [clock] or cpu_flags that it "
            "names."
        )
        raise BoardError(what, where=board.name, hint=hint) from error
    return PortCheck(image.sizes.flash_bytes - image.model_flash_bytes)


def _smallest_network() -> IRModule:
    kind = TensorType((1,), FLOAT32)
    x, y = Value("x", kind), Value("y", kind)
    main = Function("main", (x,), (Call("relu", (x,), (y,)),), (y,))
    return IRModule("check", {"main": main})
