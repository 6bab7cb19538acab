"""Progress display in notebooks, which shows log messages below a running cell.

`%load_ext firmwright` enables it. A message with "3 of 10" fills a progress bar. The display is
removed when the cell has finished.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from html import escape
from importlib import import_module
from typing import Any, Protocol

from firmwright.cli.progress import ROOT

COUNT = re.compile(r"(\d[\d,]*) of (\d[\d,]*)")
Show = Callable[[str], None]


class CellEvents(Protocol):
    """The events that IPython triggers before and after a cell."""

    def register(self, event: str, function: Callable[..., None]) -> None:
        """Call `function` at every `event`."""

    def unregister(self, event: str, function: Callable[..., None]) -> None:
        """Stop calling `function`."""


class CellProgress(logging.Handler):
    """A log handler that shows messages while a cell runs.

    `new_place` creates a display and returns its update function.
    """

    def __init__(self, new_place: Callable[[], Show]) -> None:
        super().__init__(logging.INFO)
        self._new_place = new_place
        self._show: Show | None = None
        self._level_before = logging.NOTSET

    def begin(self, *_: Any) -> None:
        logger = logging.getLogger(ROOT)
        self._level_before = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def end(self, *_: Any) -> None:
        logger = logging.getLogger(ROOT)
        if self in logger.handlers:
            logger.removeHandler(self)
            logger.setLevel(self._level_before)
        if self._show is not None:
            self._show("")
            self._show = None

    def emit(self, record: logging.LogRecord) -> None:
        """Show the message; the first one creates the display."""
        if self._show is None:
            self._show = self._new_place()
        self._show(render_progress(record.getMessage()))


def render_progress(message: str) -> str:
    count = COUNT.search(message)
    value = ""
    if count:
        done, whole = (int(number.replace(",", "")) for number in count.groups())
        value = f' value="{done}" max="{max(whole, 1)}"'
    return f"<progress{value}></progress> <span>{escape(message)}</span>"


def attach_progress(events: CellEvents, new_place: Callable[[], Show]) -> CellProgress:
    progress = CellProgress(new_place)
    events.register("pre_run_cell", progress.begin)
    events.register("post_run_cell", progress.end)
    return progress


def ipython_display() -> Show:
    ipython: Any = import_module("IPython.display")  # only a notebook has it
    handle = ipython.display(ipython.HTML(""), display_id=True)
    return lambda text: handle.update(ipython.HTML(text))
