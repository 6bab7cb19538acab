"""The project API: generate, build and flash a project, and talk to its firmware.

Vendors implement `ProjectApi` for their build systems and register it under the entry
point group `firmwright.projects`. `BuiltinProject` is the implementation for SCons
projects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

from firmwright.artifacts import Image
from firmwright.base.errors import UsageError
from firmwright.base.plugin_calls import entry_points, load_entry_point, plugin_call
from firmwright.boards import load_board
from firmwright.build import build_project
from firmwright.device.session import Session
from firmwright.device.transport import Transport
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.flashing import flash, plan_flashing
from firmwright.flows.board.model_session import ModelSession, require_same_tensors
from firmwright.pipeline import Compilation

GROUP: Final = "firmwright.projects"
BUILTIN: Final = "builtin"
ProjectChoices = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ProjectOption:
    """An option of an implementation."""

    name: str
    help: str
    default: str = ""


@dataclass(frozen=True, slots=True)
class ProjectInfo:
    """The name, description and options of an implementation."""

    name: str
    description: str
    options: tuple[ProjectOption, ...] = ()


class ProjectApi(Protocol):
    """A project API implementation, for one project at a time.

    Methods raise FirmwrightErrors. `options` has values by the names in `info`.
    """

    def info(self) -> ProjectInfo:
        """Return the description; this may be called at any time."""

    def generate(
        self, compiled: Compilation, directory: Path, options: ProjectChoices
    ) -> None:
        """Write the project."""

    def build(self, directory: Path, options: ProjectChoices) -> None:
        """Build the firmware."""

    def flash(self, directory: Path, options: ProjectChoices) -> None:
        """Install the firmware; do nothing if that needs no separate step."""

    def open_transport(self, directory: Path, options: ProjectChoices) -> None:
        """Start the firmware and open the byte stream to it."""

    def close_transport(self) -> None:
        """Close the stream; closing it twice is allowed."""

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Wait for data and return up to `limit` bytes, or b"" after `timeout_s`."""

    def write(self, data: bytes) -> None:
        """Send all of `data`."""

    def reset(self) -> None:
        """Restart the firmware; the stream stays open."""

    def monitor(self, timeout_s: float) -> bytes:
        """Return the unsolicited output of the firmware during `timeout_s`."""


class ProjectTransport:
    """A project's byte stream as a transport for sessions."""

    def __init__(self, api: ProjectApi) -> None:
        self._api = api

    @property
    def name(self) -> str:
        return f"project {self._api.info().name}"

    def read(self, limit: int, timeout_s: float) -> bytes:
        return self._api.read(limit, timeout_s)

    def write(self, data: bytes) -> None:
        self._api.write(data)

    def close(self) -> None:
        self._api.close_transport()


class BuiltinProject:
    """SCons projects for all boards; options: runner, address, port, boards_dir."""

    def __init__(self) -> None:
        self._line: Transport | None = None
        self._reopen: tuple[Path, ProjectChoices] | None = None

    def info(self) -> ProjectInfo:
        options = {
            "runner": "the tool that flashes the board",
            "address": "the runner's address: a stub, port or volume",
            "port": "serial port or pyserial URL of the link",
            "boards_dir": "an additional folder of boards",
        }
        about = "the project that compile writes, built by SCons"
        listed = tuple(ProjectOption(*pair) for pair in options.items())
        return ProjectInfo(BUILTIN, about, listed)

    def generate(
        self, compiled: Compilation, directory: Path, options: ProjectChoices
    ) -> None:
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
        """Restart the process or emulator, or reset the board over its link."""
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

    def _open_line(self) -> Transport:
        if self._line is None:
            raise UsageError(
                "the transport is not open.", hint="call open_transport first."
            )
        return self._line

    def _image(self, directory: Path, options: ProjectChoices) -> Image:
        self._check(options)
        return build_project(directory)

    def _check(self, options: ProjectChoices) -> None:
        names = [option.name for option in self.info().options]
        unknown = sorted(options.keys() - set(names))
        if unknown:
            what = f"there is no option {unknown[0]!r}."
            hint = f"use one of {', '.join(names)}."
            raise UsageError(what, where=f"project {BUILTIN}", hint=hint)


def _folders(options: ProjectChoices) -> tuple[Path, ...]:
    return (Path(options["boards_dir"]),) if options.get("boards_dir") else ()


def find_project_api(name: str = BUILTIN) -> ProjectApi:
    """Return the built-in implementation, or the one that a package registered."""
    if name == BUILTIN:
        return BuiltinProject()
    registered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in registered:
        names = ", ".join([BUILTIN, *sorted(registered)])
        raise UsageError(
            f"there is no project API {name!r}.", hint=f"use one of {names}."
        )
    factory = cast(Callable[[], ProjectApi], load_entry_point(registered[name]))
    with plugin_call(f"the project API {name}"):
        return factory()


def open_project(
    api: ProjectApi,
    compiled: Compilation,
    directory: Path,
    options: ProjectChoices | None = None,
) -> ModelSession:
    settings = options or {}
    api.generate(compiled, directory, settings)
    api.build(directory, settings)
    api.flash(directory, settings)
    api.open_transport(directory, settings)
    session = Session(ProjectTransport(api), model_id=bytes.fromhex(compiled.model_id))
    require_same_tensors(compiled, session)
    return ModelSession(compiled, session, None)
