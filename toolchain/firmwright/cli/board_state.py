"""What a board has been tested with, in the words of tables."""

from firmwright.boards import Board

_STATES = {"hardware": "run on hardware", "emulated": "emulated", "built": "only built"}


def describe_validation(board: Board) -> str:
    """Return `emulated`, `only built`, `export only` and so on."""
    if board.is_host:
        return "runs here"
    return "export only" if board.export_only else _STATES[board.validation]
