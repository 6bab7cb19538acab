"""The models of a studio page, and what it shows of them.

Everything comes from the functions that the verbs use: `fit`, `compile`, `export`.
"""

import secrets
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.base.json_input import Json, JsonObject
from firmwright.boards import list_boards, list_chips
from firmwright.cli.fit import fit_to_json
from firmwright.compilation_summary import CompilationSummary
from firmwright.extensions.studio.program_search import FrontSearch
from firmwright.flows.export.package_export import export_model
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import MODEL_SUFFIXES, Model, load_model
from firmwright.flows.predict.fit import fit_model, fit_of_program
from firmwright.package.export_format import export_formats, find_export_format
from firmwright.package.zip_archive import zip_tree
from firmwright.pipeline import OPTIMIZE_GOALS, Compilation
from firmwright.report.memory_map import make_memory_map, render_svg

ACCEPTED_SUFFIXES = (*MODEL_SUFFIXES, ".keras", ".h5")
MODELS_MAX = 8
"""The models that a page keeps; the oldest one makes room."""


@dataclass(frozen=True, slots=True)
class StudioRequest:
    """What a person chose on the page: a model, a board, and the three knobs."""

    model: str
    board: str
    optimize: str
    ram_bytes: int | None
    flash_bytes: int | None
    stream_input_rows: bool = False


@dataclass(frozen=True, slots=True)
class DroppedModel:
    """A model, and the name of its file on the person's disk."""

    model: Model
    file_name: str


@dataclass(frozen=True, slots=True)
class Download:
    """A package to download."""

    file_name: str
    data: bytes


@dataclass(slots=True)
class Workbench:
    """The models that a person has dropped; one compilation runs at a time.

    A search of programs is a process of its own beside it.
    """

    folder: Path
    _models: dict[str, DroppedModel] = field(default_factory=dict)
    _compiled: dict[StudioRequest, Compilation] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _search: FrontSearch | None = None

    def add_model(self, file_name: str, data: bytes) -> dict[str, object]:
        """Read a model file; raise FirmwrightError if it is not supported.

        Only the suffix and the stem of `file_name` are used, and no path.
        """
        name = Path(file_name.replace("\\", "/")).name
        suffix = Path(name).suffix.lower()
        if suffix not in ACCEPTED_SUFFIXES:
            what = "this is not a model file."
            raise UsageError(what, where=name, hint=f"{', '.join(ACCEPTED_SUFFIXES)}.")
        stem = to_c_identifier(Path(name).stem)
        key = secrets.token_urlsafe(12)
        file = self.folder / key / f"{stem}{suffix}"
        with self._lock:
            file.parent.mkdir()
            file.write_bytes(data)
            model = load_model(file)
            while len(self._models) >= MODELS_MAX:
                del self._models[next(iter(self._models))]
            self._models[key] = DroppedModel(model, name)
        return {"model": key, "name": model.name, "file": name, "bytes": len(data)}

    def choices(self) -> dict[str, object]:
        """Return the boards, chips, goals and package formats that the page offers."""
        boards = [board for board in list_boards() if not board.is_host]
        names = {board.name for board in boards}
        chips = [chip for chip in list_chips() if chip.name not in names]
        groups: list[dict[str, object]] = []
        for title, members in {"Boards": boards, "Chips": chips}.items():
            rows = [
                {"name": item.name, "description": item.description} for item in members
            ]
            groups.append({"title": title, "boards": rows})
        goals = [goal for goal in OPTIMIZE_GOALS if goal]
        return {"groups": groups, "goals": goals, "formats": list(export_formats())}

    def fit(self, request: StudioRequest) -> dict[str, object]:
        """Return the fit, and the drawing of the memory plan if the model fits."""
        with self._lock:
            try:
                compiled = self._compile(request)
            except DoesNotFitError:
                fit = fit_model(self._model(request), _options(request))
                return {"fit": fit_to_json(fit), "plan": "", "command": ""}
            fit = fit_of_program(compiled)
            return {
                "fit": fit_to_json(fit),
                "plan": _draw_plan(compiled.summary),
                "command": _command(request, self._dropped(request).file_name),
            }

    def start_search(self, request: StudioRequest) -> dict[str, object]:
        """Start the search of the programs that none beats; it ends an earlier one."""
        with self._lock:
            file, options = self._model(request).file, _options(request)
            self.end_search()
            self._search = FrontSearch(file, options)
        return self.search_state()

    def search_state(self) -> dict[str, object]:
        """Return how far the search is, with its programs at the end."""
        search = self._search
        if search is None:
            raise UsageError("no search is running.", hint="start it again.")
        state = search.state()
        found: dict[str, object] = {"done": state.done, "total": state.total}
        if state.programs is None:
            return found
        rows: list[dict[str, object]] = []
        for program in state.programs:
            row: dict[str, object] = {
                "options": program.options,
                "workspace_bytes": program.workspace_bytes,
                "flash_bytes": program.flash_bytes,
                "duration": program.duration,
                "is_current": program.is_current,
            }
            rows.append(row)
        has_cycles = all(program.cycles is not None for program in state.programs)
        unit = "cycles" if has_cycles else "instructions"
        return {**found, "programs": rows, "unit": unit}

    def end_search(self) -> dict[str, object]:
        """End the search if one is running."""
        search, self._search = self._search, None
        if search is not None:
            search.end()
        return {}

    def source(self, request: StudioRequest) -> dict[str, object]:
        """Return the C of the model."""
        with self._lock:
            compiled = self._compile(request)
        path = f"model/{compiled.c_prefix}.c"
        return {"path": path, "text": str(compiled.tree.files[path])}

    def package(self, request: StudioRequest, form: str) -> Download:
        """Return the package for a build system, as one archive."""
        with self._lock:
            compiled = self._compile(request)
            target = self.folder / secrets.token_urlsafe(12)
            package = export_model(compiled, form, target)
        name = f"{compiled.summary.model}-{form}"
        archive = find_export_format(form).archive
        if archive is not None:
            suffix = Path(archive.file_name).suffix
            return Download(f"{name}{suffix}", package.path.read_bytes())
        return Download(f"{name}.zip", zip_tree(package.tree))

    def _compile(self, request: StudioRequest) -> Compilation:
        if request not in self._compiled:
            compiled = compile_for(self._model(request), **_options(request))
            self._compiled = {request: compiled}
        return self._compiled[request]

    def _model(self, request: StudioRequest) -> Model:
        return self._dropped(request).model

    def _dropped(self, request: StudioRequest) -> DroppedModel:
        if request.model not in self._models:
            what = "the page no longer has this model."
            raise UsageError(what, hint="drop the file again.")
        return self._models[request.model]


def read_request(data: JsonObject) -> StudioRequest:
    """Return the request in the JSON of a page; raise UsageError for another kind."""
    rows = data.get("stream_input_rows", False)
    if not isinstance(rows, bool):
        raise UsageError("stream_input_rows is neither true nor false.")
    return StudioRequest(
        model=_text(data, "model"),
        board=_text(data, "board"),
        optimize=_text(data, "optimize"),
        ram_bytes=_bytes(data, "ram_bytes"),
        flash_bytes=_bytes(data, "flash_bytes"),
        stream_input_rows=rows,
    )


def _text(data: Mapping[str, Json], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{key} is not a text.")
    return value


def _bytes(data: Mapping[str, Json], key: str) -> int | None:
    value = data.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{key} is not a number of bytes.")
    return value


def _options(request: StudioRequest) -> OptionValues:
    if request.optimize not in OPTIMIZE_GOALS:
        raise UsageError(f"there is no goal {request.optimize!r}.")
    options: OptionValues = {"board": request.board, "optimize": request.optimize}
    if request.ram_bytes is not None:
        options["ram_bytes"] = request.ram_bytes
    if request.flash_bytes is not None:
        options["flash_bytes"] = request.flash_bytes
    if request.stream_input_rows:
        options["stream_input_rows"] = True
    return options


def _draw_plan(summary: CompilationSummary) -> str:
    """Return the memory maps of the pools that are used, as SVG."""
    maps: list[str] = []
    for name, pool in summary.pools.items():
        if pool.bytes and pool.access == "rw":
            title = f"{summary.model} on {summary.board}, pool {name}"
            drawn = make_memory_map(summary, name, title)
            maps.append(render_svg(drawn, has_style_sheet=True))
    return "".join(maps)


def _command(request: StudioRequest, file: str) -> str:
    """Return the command line that compiles the same."""
    words = [f"firmwright compile {shlex.quote(file)} --board {request.board}"]
    words.append(f"--optimize {request.optimize}")
    if request.ram_bytes is not None:
        words.append(f"--ram {request.ram_bytes}")
    if request.flash_bytes is not None:
        words.append(f"--flash {request.flash_bytes}")
    if request.stream_input_rows:
        words.append("--stream-input-rows")
    return " ".join(words)
