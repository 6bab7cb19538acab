"""Compiler from trained networks to bit-exact, heap-free C firmware.

import firmwright as fw

model = fw.load("kws.tflite")
compiled = fw.compile(model, board="mps2-an386")
compiled.save("out")                    # a project that builds with `scons`
with fw.session(compiled) as session:   # built, started in QEMU and connected
    outputs = session.run(inputs)
"""

from __future__ import annotations

from importlib import import_module

from firmwright.base.version import VERSION as __version__  # noqa: F401 - for users

# Python runs this file before __main__.py, which removes the current folder from the
# import path: until then, only modules that Python has already loaded may be imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from firmwright.base.errors import FirmwrightError
    from firmwright.cli.progress import NotebookShell
    from firmwright.flows.board.firmware_images import build_image
    from firmwright.flows.board.model_session import open_session as session
    from firmwright.flows.model.compilation import (
        compile_for as compile,  # noqa: A004 - the public name is fw.compile
    )
    from firmwright.flows.model.model import Model, partition
    from firmwright.flows.model.model import load_model as load
    from firmwright.flows.verify.evaluation import evaluate
    from firmwright.flows.verify.verification import verify
    from firmwright.pipeline import Compilation
    from firmwright.targets.backend_registry import register_backend

__all__ = [
    # values
    "Compilation",
    "FirmwrightError",
    "Model",
    # steps, each usable alone
    "build_image",
    "compile",
    "evaluate",
    "load",
    "partition",
    "register_backend",
    "session",
    "verify",
]

_DEFINITIONS = {
    "Compilation": ("pipeline", "Compilation"),
    "FirmwrightError": ("base.errors", "FirmwrightError"),
    "Model": ("flows.model.model", "Model"),
    "build_image": ("flows.board.firmware_images", "build_image"),
    "compile": ("flows.model.compilation", "compile_for"),
    "evaluate": ("flows.verify.evaluation", "evaluate"),
    "load": ("flows.model.model", "load_model"),
    "partition": ("flows.model.model", "partition"),
    "register_backend": ("targets.backend_registry", "register_backend"),
    "session": ("flows.board.model_session", "open_session"),
    "verify": ("flows.verify.verification", "verify"),
}
"""The definition of each public name, imported on first use to keep imports fast."""


def __getattr__(name: str) -> object:
    if name not in _DEFINITIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_module(f"{__name__}.base.html_views").provide_views(
        f"{__name__}.notebook.html"
    )
    module, attribute = _DEFINITIONS[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def load_ipython_extension(ipython: NotebookShell) -> None:
    """Show progress below running cells: `%load_ext firmwright`."""
    from firmwright.cli.progress import attach_progress, ipython_display

    attach_progress(ipython.events, ipython_display)


def __dir__() -> list[str]:
    return sorted(__all__)
