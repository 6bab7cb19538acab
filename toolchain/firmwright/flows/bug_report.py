"""Everything that whoever looks into a fault wants to know, in one archive.

In: a way to a model, the options of its compilation, and whether its weights may be given away.
Out: the bytes of a ZIP and what they hold. Invariants: the same machine and arguments give the same
bytes; without leave no constant's bytes are in it, but shapes and hashes; the user's home folder is
written `~`. Whatever the compilation ends in is packed, since that is what the report is about.
"""

from __future__ import annotations

import io
import json
import platform
import sys
import traceback
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from firmwright.base.errors import FirmwrightError
from firmwright.base.version import VERSION
from firmwright.flows.compilation import compile_for, options_for
from firmwright.flows.doctor import ToolStatus
from firmwright.flows.model import Model
from firmwright.ir.module import IRModule
from firmwright.ir.printer import print_module
from firmwright.package.option_serialization import serialize_options

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The least time that a ZIP can state: the files have none."""
_README: Final = """What `firmwright bugreport` packed:

  versions.json   of firmwright, Python and the system
  command.json    the command line and the options of the compilation
  doctor.json     what is installed of compilers, emulators and packages
  outcome.txt     how the compilation ended
  ir/             the module before the first pass and after each that changed it

{weights}
"""
_README_WITHOUT_WEIGHTS: Final = """No weights: constants are shapes and SHA-256 hashes. Names of
tensors, shapes,
scales, zero points and the multipliers that follow from them are in the texts."""
_README_WITH_WEIGHTS: Final = (
    "With weights: ir/00-import.fwir has all constants, and model/ the model file."
)


@dataclass(frozen=True, slots=True)
class BugReportRequest:
    """What to pack: `read` gives the model and the options of a compilation, or raises."""

    read: Callable[[], tuple[Model, Mapping[str, Any]]]
    words: Sequence[str]
    findings: Sequence[ToolStatus]
    with_weights: bool
    home: str


@dataclass(frozen=True, slots=True)
class BugReport:
    """The archive, its files with their sizes in bytes, and how the compilation ended."""

    data: bytes
    files: Mapping[str, int]
    outcome: str


def make_bug_report(request: BugReportRequest) -> BugReport:
    """Compile once and pack what happened."""
    texts, outcome = _compilation(request)
    weights = _README_WITH_WEIGHTS if request.with_weights else _README_WITHOUT_WEIGHTS
    files: dict[str, str | bytes] = {
        "README.txt": _README.format(weights=weights),
        "versions.json": _json(_versions()),
        "doctor.json": _json([asdict(found) for found in request.findings]),
        "outcome.txt": outcome + "\n",
        **texts,
    }
    plain = {
        path: content if isinstance(content, bytes) else _at_home(content, request.home).encode()
        for path, content in sorted(files.items())
    }
    sizes = {path: len(data) for path, data in plain.items()}
    return BugReport(_packed(plain), sizes, outcome.splitlines()[-1])


def _compilation(request: BugReportRequest) -> tuple[dict[str, str | bytes], str]:
    """The files that come of it, and what is to be said of its end."""
    files: dict[str, str | bytes] = {"command.json": _json({"words": list(request.words)})}
    try:
        model, given = request.read()
        options = options_for(model.module, given)
        said = {"words": list(request.words), "options": serialize_options(options)}
        files["command.json"] = _json(said)
        if request.with_weights and model.source is not None:
            files[f"model/{model.name}.bin"] = model.source
        texts = _ModuleDumps(files)
        texts.take("import", model.module, with_constants=request.with_weights)
        compiled = compile_for(model, watch=texts.take, **given)
    except FirmwrightError as error:
        return files, f"{''.join(traceback.format_exception(error))}{error}"
    except Exception as error:  # noqa: BLE001 - a crash is what is reported
        return files, "".join(traceback.format_exception(error)).rstrip()
    return files, f"compiled: model id {compiled.model_id}"


class _ModuleDumps:
    """Adds a module's text after each pass that changed it."""

    def __init__(self, files: dict[str, str | bytes]) -> None:
        self._files = files
        self._count = 0
        self._last = ""

    def take(self, name: str, module: IRModule, with_constants: bool = False) -> None:
        text = print_module(module, elide_constants=not with_constants)
        if text != self._last:
            self._files[f"ir/{self._count:02}-{name}.fwir"] = text
        self._last = text
        self._count += 1


def _versions() -> dict[str, str]:
    return {
        "firmwright": VERSION,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "encoding": sys.getfilesystemencoding(),
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _at_home(text: str, home: str) -> str:
    """Without the user's name: paths below the home folder begin with `~`, also those in JSON."""
    if len(home.rstrip("/\\")) < 2:  # the root folder is nobody's
        return text
    for form in {home, home.replace("\\", "\\\\"), home.replace("\\", "/")}:
        text = text.replace(form, "~")
    return text


def _packed(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.create_system = 3  # else it says on which system it was packed
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return made.getvalue()
