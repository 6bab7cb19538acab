"""Progress from log messages: a spinner on a terminal, lines with `--verbose`, otherwise nothing.

All output goes to stderr. The spinner is removed when the work is done. After
`%load_ext firmwright`, notebooks show messages below the running cell; "3 of 10" in a message fills
a progress bar.
"""

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Iterator
from html import escape
from importlib import import_module
from typing import Any, Protocol

from firmwright.cli.printing import visible_text, write_text

LOGGER = logging.getLogger("firmwright")
COUNT = re.compile(r"(\d[\d,]*) of (\d[\d,]*)")
Show = Callable[[str], None]


@contextlib.contextmanager
def show_progress(*, quiet: bool, verbose: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if verbose:
            handler = _LastMessage(lambda message: write_text(message, sys.stderr))
        elif sys.stderr.isatty() and not quiet:
            handler = _LastMessage(stack.enter_context(_spinner()))
        else:
            yield
            return
        before = LOGGER.level
        LOGGER.setLevel(logging.INFO)
        LOGGER.addHandler(handler)
        try:
            yield
        finally:
            LOGGER.removeHandler(handler)
            LOGGER.setLevel(before)


class _LastMessage(logging.Handler):
    """A log handler that passes each message to `show`."""

    def __init__(self, show: Show) -> None:
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(visible_text(record.getMessage()))


@contextlib.contextmanager
def _spinner() -> Iterator[Show]:
    # Imported here because it is slow and most runs have no terminal.
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as status:
        yield lambda message: status.update(Text(message, style="dim"))


# ---- notebooks -----------------------------------------------------------------------------------


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
        self._level_before = LOGGER.level
        LOGGER.setLevel(logging.INFO)
        LOGGER.addHandler(self)

    def end(self, *_: Any) -> None:
        if self in LOGGER.handlers:
            LOGGER.removeHandler(self)
            LOGGER.setLevel(self._level_before)
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
