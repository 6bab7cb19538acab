"""Plugins of QEMU in the folder `plugin`, compiled by this computer's compiler."""

import hashlib
import tempfile
from pathlib import Path

from firmwright.base.child_process import Word, find_program, run_program
from firmwright.base.errors import ToolMissingError

_SOURCES = Path(__file__).with_name("plugin")
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = (
    "-std=c99",
    "-D_POSIX_C_SOURCE=200809L",
    "-O2",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
)
_TOOL_TIMEOUT_S = 60.0


def build_emulator_plugin(name: str, folder: Path) -> Path:
    """Compile the plugin `name`.c in `folder` and return its path.

    Raise ToolMissingError without a compiler.
    """
    compiler = _find_compiler()
    source = _SOURCES / f"{name}.c"
    parts = (source, *sorted(_SOURCES.glob("*.h")))
    sources = b"".join(file.read_bytes() for file in parts)
    key = hashlib.sha256(" ".join(_FLAGS).encode() + sources).hexdigest()[:16]
    library = folder / f"{name}-{key}.so"
    if library.is_file():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        compiled = Path(work) / library.name
        command: list[Word] = [compiler, *_FLAGS, source, "-o", compiled]
        failure = "the QEMU plugin does not compile."
        run_program(command, compiler, timeout_s=_TOOL_TIMEOUT_S, failure=failure)
        compiled.replace(library)
    return library


def plugin_argument(plugin: Path, file: Path) -> str:
    """Return the value of QEMU's `-plugin` for a plugin that writes to `file`."""
    words = (f"file={plugin.absolute()}", f"out={file.absolute()}")
    return ",".join(word.replace(",", ",,") for word in words)


def _find_compiler() -> str:
    for name in _COMPILERS:
        path = find_program(name)
        if path:
            return path
    what = "a plugin of QEMU requires a C compiler for this machine."
    raise ToolMissingError(what, hint="apt install gcc.")


def check_plugin_support(program: str) -> None:
    path = find_program(program)
    if path is None:
        what = f"{program} is not installed."
        raise ToolMissingError(what, hint="apt install qemu-system.")
    _, options = run_program([path, "--help"], program, timeout_s=_TOOL_TIMEOUT_S)
    if "\n-plugin " not in options:
        hint = "use a QEMU configured with --enable-plugins, such as Debian's."
        what = f"{program} was built without plugin support."
        raise ToolMissingError(what, where=path, hint=hint)
