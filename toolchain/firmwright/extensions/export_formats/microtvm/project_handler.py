"""The methods of microTVM's project API, performed by a project API of Firmwright.

The API is public: the requests, their parameters and their answers are those of TVM 0.9
to 0.14 (docs/arch/microtvm_project_api.rst there). A template project is a folder with
the server's file; a generated project also has the archive of its model.
"""

import base64
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from firmwright.base.errors import FirmwrightError, UsageError
from firmwright.base.json_input import Json, JsonObject, as_text
from firmwright.base.trust import TRUST_VARIABLE, trusts_path
from firmwright.flows.board.project_api import (
    BuiltinProject,
    ProjectApi,
    ProjectChoices,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model

ARCHIVE: Final = "model.tar"
"""TVM's name of the archive in a generated project."""
LAUNCHER: Final = "launch_microtvm_api_server.sh"
_MODULE: Final = re.compile(r"(\./)?src/\w+\.fwir")
_METHODS: Final = {
    "runner": ["flash"],
    "address": ["flash"],
    "port": ["open_transport"],
    "boards_dir": ["generate_project", "flash", "open_transport"],
}
"""The methods that take each option of the built-in project API."""
_POLL_S: Final = 1.0
_NO_TIMEOUTS: Final = {
    "session_start_retry_timeout_sec": 0,
    "session_start_timeout_sec": 0,
    "session_established_timeout_sec": 0,
}
"""The sessions are those of the link, which has its own."""


class TransportClosedError(FirmwrightError):
    """The transport is not open. The class's name is part of the protocol."""


class IoTimeoutError(FirmwrightError):
    """Nothing was read in time. The class's name is part of the protocol."""


@dataclass(slots=True)
class ProjectHandler:
    """The project of a server, whose file is `server`."""

    server: Path
    api: ProjectApi = field(default_factory=BuiltinProject)
    is_open: bool = False

    @property
    def methods(self) -> Mapping[str, Callable[..., Json]]:
        """The methods by their names in requests."""
        found = (
            self.server_info_query,
            self.generate_project,
            self.build,
            self.flash,
            self.open_transport,
            self.close_transport,
            self.read_transport,
            self.write_transport,
        )
        return {method.__name__: method for method in found}

    @property
    def folder(self) -> Path:
        return self.server.resolve().parent

    def server_info_query(self, tvm_version: str) -> Json:
        """Describe the project; every version of TVM is accepted."""
        del tvm_version
        archive = self.folder / ARCHIVE
        return {
            "protocol_version": 1,
            "platform_name": "firmwright",
            "is_template": not archive.is_file(),
            "model_library_format_path": str(archive) if archive.is_file() else "",
            "project_options": list(self._options()),
        }

    def generate_project(
        self,
        model_library_format_path: str,
        standalone_crt_dir: str,
        project_dir: str,
        options: JsonObject,
    ) -> None:
        """Compile the module of an archive and write its project.

        `standalone_crt_dir` is not used: the firmware needs no runtime of TVM.
        """
        del standalone_crt_dir
        source, folder = Path(model_library_format_path), Path(project_dir)
        if folder.exists():
            what = "the project's folder exists already."
            raise UsageError(what, where=str(folder), hint="remove it.")
        chosen = self._chosen(options)
        board = as_text(options["board"]) if options.get("board") else ""
        folders = (Path(chosen["boards_dir"]),) if "boards_dir" in chosen else ()
        compiled = compile_for(_load_archive(source), board, board_dirs=folders)
        self.api.generate(compiled, folder, chosen)
        shutil.copyfile(source, folder / ARCHIVE)
        for name in (self.server.name, LAUNCHER):
            if (self.folder / name).is_file():
                shutil.copy(self.folder / name, folder / name)

    def build(self, options: JsonObject) -> None:
        self.api.build(self.folder, self._chosen(options))

    def flash(self, options: JsonObject) -> None:
        self.api.flash(self.folder, self._chosen(options))

    def open_transport(self, options: JsonObject) -> Json:
        self.api.open_transport(self.folder, self._chosen(options))
        self.is_open = True
        return {"timeouts": _NO_TIMEOUTS}

    def close_transport(self) -> None:
        self.api.close_transport()
        self.is_open = False

    def read_transport(self, n: int, timeout_sec: float | None) -> Json:
        """Return at most `n` bytes; without a time limit, exactly `n`."""
        self._require_open()
        received = b""
        if timeout_sec is not None:
            received = self.api.read(n, timeout_sec)
            if not received and n:
                what = f"nothing was received in {timeout_sec:g} s."
                raise IoTimeoutError(what, hint="a longer timeout_sec.")
        else:
            while len(received) < n:
                received += self.api.read(n - len(received), _POLL_S)
        return {"data": base64.b85encode(received).decode("ascii")}

    def write_transport(self, data: str, timeout_sec: float | None) -> None:
        """Send all bytes; the time limit is that of the transport."""
        del timeout_sec
        self._require_open()
        self.api.write(base64.b85decode(data))

    def _require_open(self) -> None:
        if not self.is_open:
            what = "the transport is not open."
            raise TransportClosedError(what, hint="call open_transport first.")

    def _options(self) -> Iterator[Json]:
        """Yield the options in the form of the protocol."""
        described = {option.name: option.help for option in self.api.info().options}
        board = "the board of the archive, if the project shall be for that one only"
        for name, methods in {"board": ["generate_project"], **_METHODS}.items():
            yield {
                "name": name,
                "choices": None,
                "default": None,
                "type": "str",
                "required": None,
                "optional": methods,
                "help": described.get(name, board),
            }

    def _chosen(self, options: JsonObject) -> ProjectChoices:
        """Return the options for the project API; TVM sends null for the others."""
        chosen: dict[str, str] = {}
        for name, value in options.items():
            if value is not None and name != "board":
                chosen[name] = as_text(value)
        return chosen


def _load_archive(source: Path) -> Model:
    """Return the compiled module of an archive in the Model Library Format.

    Raise UsageError if its code would become a part of firmware without the user's
    trust in the archive, or the folder that it is in.
    """
    try:
        with tarfile.open(source) as archive:
            names = [name for name in archive.getnames() if _MODULE.fullmatch(name)]
            if len(names) != 1:
                what = (
                    "the archive has no module of Firmwright; TVM's own cannot be read."
                )
                hint = "firmwright export MODEL --board B --format mlf."
                raise UsageError(what, where=str(source), hint=hint)
            member = archive.extractfile(names[0])
            text = member.read() if member else b""
    except (OSError, tarfile.TarError) as error:
        what = f"the archive cannot be read: {error}."
        hint = "an archive that export --format mlf wrote."
        raise UsageError(what, where=str(source), hint=hint) from error
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / Path(names[0]).name
        module.write_bytes(text)
        model = load_model(module, trust=trusts_path(source))
    if model.module.untrusted is not None:
        what = "the archive contains code of its own, C or lowered functions."
        hint = f"read it; if you trust it, add {source.resolve()} to {TRUST_VARIABLE}."
        raise UsageError(what, where=str(source), hint=hint)
    return model
