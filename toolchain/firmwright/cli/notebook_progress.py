"""Progress in a notebook: while a cell works, what the flows log stands below it.

`%load_ext firmwright` turns it on. A message with "3 of 10" in it fills a bar; others show that
something goes on. When the cell is done the bar is gone.
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
    """What IPython calls before and behind a cell."""

    def register(self, event: str, function: Callable[..., None]) -> None:
        """Calls `function` at every `event` from now on."""

    def unregister(self, event: str, function: Callable[..., None]) -> None:
        """No longer."""


class CellProgress(logging.Handler):
    """Shows messages while a cell runs. `new_place` gives what exchanges HTML below the cell."""

    def __init__(self, new_place: Callable[[], Show]) -> None:
        super().__init__(logging.INFO)
        self._new_place = new_place
        self._show: Show | None = None
        self._level_before = logging.NOTSET

    def begin(self, *_: Any) -> None:
        """A cell begins."""
        logger = logging.getLogger(ROOT)
        self._level_before = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def end(self, *_: Any) -> None:
        """A cell is done, well or not."""
        logger = logging.getLogger(ROOT)
        if self in logger.handlers:
            logger.removeHandler(self)
            logger.setLevel(self._level_before)
        if self._show is not None:
            self._show("")
            self._show = None

    def emit(self, record: logging.LogRecord) -> None:
        """A place is made with the first message: most cells have none."""
        if self._show is None:
            self._show = self._new_place()
        self._show(render_progress(record.getMessage()))


def render_progress(message: str) -> str:
    """A message as a bar and its words."""
    count = COUNT.search(message)
    value = ""
    if count:
        done, whole = (int(number.replace(",", "")) for number in count.groups())
        value = f' value="{done}" max="{max(whole, 1)}"'
    return f"<progress{value}></progress> <span>{escape(message)}</span>"


def attach_progress(events: CellEvents, new_place: Callable[[], Show]) -> CellProgress:
    """Progress for every cell from the next one on."""
    progress = CellProgress(new_place)
    events.register("pre_run_cell", progress.begin)
    events.register("post_run_cell", progress.end)
    return progress


def ipython_display() -> Show:
    """IPython's own way to exchange what it has displayed."""
    ipython: Any = import_module("IPython.display")  # only a notebook has it
    handle = ipython.display(ipython.HTML(""), display_id=True)
    return lambda text: handle.update(ipython.HTML(text))
