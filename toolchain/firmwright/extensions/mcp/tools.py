"""The tools that agents call: verbs that only read, and an explanation of errors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from firmwright.base import errors
from firmwright.base.errors import FirmwrightError
from firmwright.base.version import VERSION
from firmwright.boards import list_boards
from firmwright.extensions.mcp.command_runner import (
    EMULATED,
    CommandRunner,
    ToolCallError,
)
from firmwright.flows.model.model import MODEL_SUFFIXES

_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_INSTRUCTIONS: Final = """\
Firmwright turns a trained network (TFLite, ONNX, PyTorch) into C firmware for a
microcontroller. Call `fit` first: it tells RAM, flash, stack and time on a board
without a compiler or a device. `inspect` lists operators and unsupported features.
`verify` and `profile` build the firmware and run it in an emulator. Paths are relative
to the root folder. No tool changes a file. To build, use the command line."""
_LISTED_MAX: Final = 200
NEXT_STEPS: Final = {
    "usage": "Correct the argument that the error names; its hint has a valid one.",
    "bad_model": "Export or download the model again; the file itself is damaged.",
    "unsupported": (
        "Call inspect for all places. Replace the operators, or write them as custom "
        "operators."
    ),
    "plugin": "Uninstall the extension that the error names, or report the defect.",
    "does_not_fit": (
        "Call fit for what would make the model fit: int8, less RAM at the cost of "
        "time, a smaller input, another board."
    ),
    "mismatch": (
        "Run firmwright verify --find-first-divergence on the command line, which "
        "names the first operator that differs."
    ),
    "incomplete": "Read the reasons of the parts that failed; use the other results.",
    "tool_missing": (
        "Run firmwright doctor, which lists missing tools and how to install them."
    ),
    "tool_failed": "Read the end of the tool's output in the error.",
    "device": "Check the board, its port and its firmware; flash it again.",
    "timeout": "Check that the board runs this model's firmware, or allow more time.",
    "internal": (
        "This is a defect of Firmwright: run firmwright bugreport and report it."
    ),
}
"""What to do about each code of an error."""

Model = Annotated[str, Field(description="model file, relative to the root folder")]
BoardName = Annotated[str, Field(description="a board's name, as list_boards has it")]
Samples = Annotated[int, Field(description="number of samples", ge=1, le=1000)]
Code = Annotated[str, Field(description="the word before the text of an error")]
Goal = Annotated[
    Literal["balanced", "speed", "size", "ram"],
    Field(description="what the compiler optimizes"),
]
Result = dict[str, object]


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools; docstrings and annotations are what agents read."""

    runner: CommandRunner

    def list_models(self) -> Result:
        """List the model files below the root folder."""
        return {"models": list(_models(self.runner.root))}

    def list_boards(self) -> Result:
        """List the boards with core, memory, clock and whether they are emulated."""
        rows: list[Result] = []
        for board in list_boards():
            row: Result = {
                "name": board.name,
                "description": board.description,
                "core": board.core,
                "flash_bytes": board.flash_bytes,
                "ram_bytes": board.ram_bytes,
                "clock_hz": board.run_hz,
                "emulated": board.run.kind in EMULATED,
            }
            rows.append(row)
        return {"boards": rows}

    def fit(self, model: Model, board: BoardName) -> Result:
        """Predict RAM, flash, stack and time on a board, and whether the model fits."""
        return self._run("fit", model, board)

    def inspect(self, model: Model) -> Result:
        """List a model's tensors, operators, cost and unsupported features."""
        return self._run("inspect", model)

    def verify(
        self,
        model: Model,
        board: BoardName = "host",
        samples: Samples = 10,
        optimize: Goal = "balanced",
    ) -> Result:
        """Compare the firmware's outputs in an emulator with the reference runtime."""
        name = self.runner.emulated_board(board)
        words = ("--samples", str(samples), "--optimize", optimize)
        return self._run("verify", model, name, *words)

    def profile(
        self,
        model: Model,
        board: BoardName = "mps2-an386",
        optimize: Goal = "balanced",
    ) -> Result:
        """Measure the cost of a run by operator in an emulator."""
        name = self.runner.emulated_board(board)
        return self._run("profile", model, name, "--optimize", optimize)

    def explain_error(self, code: Code) -> Result:
        """Explain the code of an error, such as does_not_fit, and what to do."""
        return explain(code)

    def _run(self, verb: str, model: str, board: str = "", *words: str) -> Result:
        options = [f"--board={board}"] if board else []
        return dict(self.runner.run(verb, self.runner.model(model), *options, *words))


def make_server(runner: CommandRunner) -> MCPServer:
    """Return a server with the public methods of `Tools`."""
    server = MCPServer(
        "firmwright", version=VERSION, instructions=_INSTRUCTIONS, log_level="ERROR"
    )
    tools = Tools(runner)
    for name in sorted(vars(Tools)):
        if inspect.isfunction(getattr(Tools, name)) and not name.startswith("_"):
            server.add_tool(_with_reasons(getattr(tools, name)), annotations=_READS)
    return server


def _with_reasons(tool: Callable[..., Result]) -> Callable[..., Result]:
    """Return a tool whose failures reach the agent with their texts."""

    @functools.wraps(tool)
    def run(**arguments: object) -> Result:
        try:
            return tool(**arguments)
        except ToolCallError as error:
            raise ToolError(str(error)) from error

    return run


def _models(root: Path) -> Iterator[str]:
    files = sorted(path for path in root.rglob("*") if path.suffix in MODEL_SUFFIXES)
    for path in files[:_LISTED_MAX]:
        yield path.relative_to(root).as_posix()


def explain(code: str) -> Result:
    """Return the meaning of an error's code; ToolCallError for an unknown one."""
    classes = error_classes()
    if code not in classes:
        known = ", ".join(classes)
        raise ToolCallError(f"usage: {code!r} is not a code. Try: one of {known}.")
    cls = classes[code]
    return {
        "code": code,
        "meaning": inspect.getdoc(cls) or "",
        "next_step": NEXT_STEPS[code],
        "exit_code": cls.exit_code,
    }


def error_classes() -> dict[str, type[FirmwrightError]]:
    """Return the class that introduces each code."""
    classes: dict[str, type[FirmwrightError]] = {}
    for cls in vars(errors).values():
        is_error = inspect.isclass(cls) and issubclass(cls, FirmwrightError)
        if is_error and cls is not FirmwrightError:
            classes.setdefault(cls.code, cls)
    return classes
