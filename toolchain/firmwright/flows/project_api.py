"""The project API: how a project is made, built, flashed and spoken to, by us or by a vendor.

In: a compilation and a folder. Out: firmware that runs, and a stream of bytes to it. `ProjectApi`
is what a vendor implements for a build system of their own and offers by the entry point
`firmwright.projects` (something that gives one when it is called); `BuiltinProject` is the first.
Sessions run over any of them, so that outputs are verified and counted alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, Protocol, cast

from firmwright.artifacts import Image
from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.build import build_project
from firmwright.device import Session, Transport, open_transport
from firmwright.flows.bootloader_flashing import (
    flash_via_bootloader,
    open_bootloader_port,
    slot_firmware_from_folder,
    uses_bootloader,
)
from firmwright.flows.flashing import flash, plan_flashing
from firmwright.flows.model_session import ModelSession
from firmwright.pipeline import Compilation

GROUP: Final = "firmwright.projects"
BUILTIN: Final = "builtin"
ProjectChoices = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProjectOption:
    """A choice that an implementation leaves to its user."""

    name: str
    help: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class ProjectInfo:
    """Who an implementation is, and what may be chosen."""

    name: str
    description: str
    options: tuple[ProjectOption, ...] = ()


class ProjectApi(Protocol):
    """One project at a time. Every step raises a FirmwrightError where it fails.

    `directory` is the project's folder; `options` are by the names that `info` tells.
    """

    def info(self) -> ProjectInfo:
        """Who this is. May be asked at any time."""

    def generate(self, compiled: Compilation, directory: Path, options: ProjectChoices) -> None:
        """Writes the project."""

    def build(self, directory: Path, options: ProjectChoices) -> None:
        """Makes firmware of it."""

    def flash(self, directory: Path, options: ProjectChoices) -> None:
        """Puts the firmware where it runs; does nothing where that is no step of its own."""

    def open_transport(self, directory: Path, options: ProjectChoices) -> None:
        """Opens the byte stream, with the firmware running behind it."""

    def close_transport(self) -> None:
        """Gives the stream back. Closing twice is allowed."""

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Up to `limit` bytes, as soon as there are any; empty if none came in time."""

    def write(self, data: bytes) -> None:
        """Sends all of it."""

    def reset(self) -> None:
        """Restarts the firmware; the stream stays open."""

    def monitor(self, timeout_s: float) -> bytes:
        """What the firmware says by itself in that time."""


class ProjectTransport:
    """The stream of an implementation as a transport, which sessions run over."""

    def __init__(self, api: ProjectApi) -> None:
        self._api = api

    @property
    def name(self) -> str:
        """The implementation's."""
        return f"project {self._api.info().name}"

    def read(self, limit: int, timeout_s: float) -> bytes:
        """As the implementation reads."""
        return self._api.read(limit, timeout_s)

    def write(self, data: bytes) -> None:
        """As the implementation writes."""
        self._api.write(data)

    def close(self) -> None:
        """Closes the implementation's stream."""
        self._api.close_transport()


class BuiltinProject:
    """Projects of SCons, for every board there is. Options: runner, address, port, boards_dir."""

    def __init__(self) -> None:
        self._line: Transport | None = None
        self._reopen: tuple[Path, ProjectChoices] | None = None

    def info(self) -> ProjectInfo:
        return ProjectInfo(
            BUILTIN,
            "the project that compile writes, built by SCons",
            (
                ProjectOption("runner", "what flashes the board"),
                ProjectOption("address", "of the runner: a stub, a port, a volume"),
                ProjectOption("port", "serial port or pyserial URL of the link"),
                ProjectOption("boards_dir", "a folder of boards besides the project's own"),
            ),
        )

    def generate(self, compiled: Compilation, directory: Path, options: ProjectChoices) -> None:
        self._check(options)
        compiled.save(directory)

    def build(self, directory: Path, options: ProjectChoices) -> None:
        self._image(directory, options)

    def flash(self, directory: Path, options: ProjectChoices) -> None:
        image = self._image(directory, options)
        board = load_board(image.board, _folders(options))
        runner, address = options.get("runner", ""), options.get("address", "")
        if board.run.kind != "serial" and not runner:
            return
        if uses_bootloader(board, runner):
            with open_bootloader_port(board, address or options.get("port", "")) as line:
                flash_via_bootloader(slot_firmware_from_folder(directory), board, line)
        else:
            flash(plan_flashing(board, image, runner, address), address=address)

    def open_transport(self, directory: Path, options: ProjectChoices) -> None:
        self.close_transport()
        image = self._image(directory, options)
        board = load_board(image.board, _folders(options))
        self._line = open_transport(board, image.elf, port=options.get("port", ""))
        self._reopen = (directory, options)

    def close_transport(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None

    def read(self, limit: int, timeout_s: float) -> bytes:
        return self._open_line().read(limit, timeout_s)

    def write(self, data: bytes) -> None:
        self._open_line().write(data)

    def reset(self) -> None:
        """A process or emulator is started anew; a board is asked over its link."""
        line = self._open_line()
        if self._reopen is None:
            return
        directory, options = self._reopen
        board = load_board(self._image(directory, options).board, _folders(options))
        if board.run.kind == "serial" or options.get("port"):
            Session(line).reset()
        else:
            self.open_transport(directory, options)

    def monitor(self, timeout_s: float) -> bytes:
        return self._open_line().read(1 << 16, timeout_s)

    # ---- Pieces -----------------------------------------------------------------------------

    def _open_line(self) -> Transport:
        if self._line is None:
            raise UsageError("the transport is not open.", hint="open_transport first.")
        return self._line

    def _image(self, directory: Path, options: ProjectChoices) -> Image:
        """Built where something changed; else what was built before."""
        self._check(options)
        return build_project(directory)

    def _check(self, options: ProjectChoices) -> None:
        known = [option.name for option in self.info().options]
        unknown = sorted(options.keys() - set(known))
        if unknown:
            raise UsageError(
                f"there is no option {unknown[0]!r}.",
                where=f"project {BUILTIN}",
                hint=f"one of {', '.join(known)}.",
            )


def _folders(options: ProjectChoices) -> tuple[Path, ...]:
    return (Path(options["boards_dir"]),) if options.get("boards_dir") else ()


def find_project_api(name: str = BUILTIN) -> ProjectApi:
    """The implementation called `name`: ours, or one that an installed package offers."""
    if name == BUILTIN:
        return BuiltinProject()
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        known = ", ".join([BUILTIN, *sorted(offered)])
        raise UsageError(f"there is no project API {name!r}.", hint=f"one of {known}.")
    return cast(ProjectApi, offered[name].load()())


def open_project(
    api: ProjectApi, compiled: Compilation, directory: Path, options: ProjectChoices | None = None
) -> ModelSession:
    """Generates, builds, flashes, opens: a session with the model in that project."""
    chosen = options or {}
    api.generate(compiled, directory, chosen)
    api.build(directory, chosen)
    api.flash(directory, chosen)
    api.open_transport(directory, chosen)
    session = Session(ProjectTransport(api), model_id=bytes.fromhex(compiled.model_id))
    return ModelSession(compiled, session, None)
