"""The models of a studio page, and what it shows of them.

Everything comes from the functions that the verbs use: `fit`, `compile`, `export`.
"""

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.base.json_input import Json, JsonObject
from firmwright.boards import list_boards
from firmwright.cli.fit import fit_to_json
from firmwright.compilation_summary import CompilationSummary
from firmwright.flows.export.package_export import export_model
from firmwright.flows.model.compilation import compile_for, options_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import MODEL_SUFFIXES, Model, load_model
from firmwright.flows.predict.fit import fit_model, fit_of_program
from firmwright.flows.predict.pareto_rows import pareto_rows
from firmwright.flows.predict.program_front import find_program_front
from firmwright.package.export_format import export_formats, find_export_format
from firmwright.package.zip_archive import zip_tree
from firmwright.pipeline import OPTIMIZE_GOALS, Compilation
from firmwright.report.memory_map import make_memory_map, render_svg

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
class Download:
    """A package to download."""

    file_name: str
    data: bytes


@dataclass(slots=True)
class Workbench:
    """The models that a person has dropped; one compilation runs at a time."""

    folder: Path
    _models: dict[str, Model] = field(default_factory=dict)
    _compiled: dict[StudioRequest, Compilation] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_model(self, file_name: str, data: bytes) -> dict[str, object]:
        """Read a model file; raise FirmwrightError if it is not supported.

        Only the suffix and the stem of `file_name` are used, and no path.
        """
        name = Path(file_name.replace("\\", "/")).name
        suffix = Path(name).suffix.lower()
        if suffix not in MODEL_SUFFIXES:
            what = "this is not a model file."
            raise UsageError(what, where=name, hint=f"{', '.join(MODEL_SUFFIXES)}.")
        stem = to_c_identifier(Path(name).stem)
        key = secrets.token_urlsafe(12)
        file = self.folder / key / f"{stem}{suffix}"
        with self._lock:
            file.parent.mkdir()
            file.write_bytes(data)
            model = load_model(file)
            while len(self._models) >= MODELS_MAX:
                del self._models[next(iter(self._models))]
            self._models[key] = model
        return {"model": key, "name": model.name, "file": name, "bytes": len(data)}

    def choices(self) -> dict[str, object]:
        """Return the boards, goals and package formats that the page offers."""
        boards: list[dict[str, object]] = []
        for board in list_boards():
            if not board.is_host:
                row: dict[str, object] = {
                    "name": board.name,
                    "description": board.description,
                    "ram_bytes": board.ram_bytes,
                    "flash_bytes": board.flash_bytes,
                }
                boards.append(row)
        goals = [goal for goal in OPTIMIZE_GOALS if goal]
        return {"boards": boards, "goals": goals, "formats": list(export_formats())}

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
                "command": _command(request),
            }

    def front(self, request: StudioRequest) -> dict[str, object]:
        """Return the programs that no other beats in RAM, flash and time."""
        with self._lock:
            compiled, model = self._compile(request), self._model(request)
            options = options_for(model.module, _options(request))
            tradeoffs = pareto_rows(model.module, options)
            programs = find_program_front(compiled, model.file, tradeoffs)
        rows: list[dict[str, object]] = []
        for program in programs:
            row: dict[str, object] = {
                "options": program.options,
                "workspace_bytes": program.workspace_bytes,
                "flash_bytes": program.flash_bytes,
                "duration": program.duration,
                "is_current": program.is_current,
            }
            rows.append(row)
        has_cycles = all(program.cycles is not None for program in programs)
        unit = "cycles" if has_cycles else "instructions"
        return {"programs": rows, "unit": unit}

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
            maps.append(render_svg(make_memory_map(summary, name, title)))
    return "".join(maps)


def _command(request: StudioRequest) -> str:
    """Return the command line that compiles the same."""
    words = [f"firmwright compile MODEL --board {request.board}"]
    words.append(f"--optimize {request.optimize}")
    if request.ram_bytes is not None:
        words.append(f"--ram {request.ram_bytes}")
    if request.flash_bytes is not None:
        words.append(f"--flash {request.flash_bytes}")
    if request.stream_input_rows:
        words.append("--stream-input-rows")
    return " ".join(words)
