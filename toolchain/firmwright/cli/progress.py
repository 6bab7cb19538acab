"""Progress from log messages: a bar on a terminal, lines with `--verbose`, or nothing.

Messages with "3 of 10" are followed by the time left, if it is more than two seconds.
All output goes to stderr. Warnings are always lines; those marked `once` appear once
for a user, recorded in the cache. The bar is removed when the work is done. After
`%load_ext firmwright`, notebooks show messages below the running cell; the numbers
also fill a progress bar.
"""

import contextlib
import hashlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from html import escape
from importlib import import_module
from typing import Protocol

from firmwright.base.cache_folder import cache_root
from firmwright.cli.printing import print_text, visible_text

LOGGER = logging.getLogger("firmwright")
COUNT = re.compile(r"(\d[\d,]*) of (\d[\d,]*)")
_SHORT_S = 2.0
"""Less time left than this is not worth a notice."""
_MINUTE_S = 60
Show = Callable[[str], None]


@contextlib.contextmanager
def show_progress(*, quiet: bool, verbose: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        show: Show = _print_line
        is_seen = verbose or (sys.stderr.isatty() and not quiet)
        if is_seen and not verbose and os.environ.get("TERM", "dumb") != "dumb":
            show = stack.enter_context(_bar())
        level = logging.INFO if is_seen else logging.WARNING
        handler = _MessageHandler(lambda message: show(visible_text(message)), level)
        handler.begin()
        stack.callback(handler.end)
        yield


class _MessageHandler(logging.Handler):
    """A log handler that passes each message to `show` between `begin` and `end`."""

    def __init__(self, show: Show, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._show = show
        self._time_left = TimeLeft()
        self._level_before = logging.NOTSET

    def begin(self, *_: object) -> None:
        self._level_before = LOGGER.level
        LOGGER.setLevel(self.level)
        LOGGER.addHandler(self)

    def end(self, *_: object) -> None:
        if self in LOGGER.handlers:
            LOGGER.removeHandler(self)
            LOGGER.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.levelno < logging.WARNING:
            self._show(message + self._time_left.after(message))
        elif not getattr(record, "once", False) or _is_new(message):
            _print_line(message)


class TimeLeft:
    """The time that a task needs, from the numbers "3 of 10" in its messages."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._total = self._first = self._last = 0
        self._begin_s = 0.0

    def after(self, message: str) -> str:
        """Return ", about 12 s left" after a message of a longer task, otherwise ""."""
        count = count_in(message)
        if count is None:
            return ""
        done, total = count
        if total != self._total or done < self._last:
            self._total, self._first, self._begin_s = total, done, self._clock()
        self._last = done
        if done == self._first:
            return ""
        elapsed_s = self._clock() - self._begin_s
        left_s = elapsed_s * (total - done) / (done - self._first)
        if left_s < _SHORT_S:
            return ""
        if left_s < 2 * _MINUTE_S:
            return f", about {left_s:.0f} s left"
        return f", about {left_s / _MINUTE_S:.0f} min left"


def _is_new(message: str) -> bool:
    """Record a message in the cache; return whether it was not there."""
    path = cache_root() / "messages" / hashlib.sha256(message.encode()).hexdigest()[:16]
    try:
        path.parent.mkdir(exist_ok=True)
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        pass
    return True


def _print_line(message: str) -> None:
    print_text(message, sys.stderr)


@contextlib.contextmanager
def _bar() -> Iterator[Show]:
    # Imported here because it is slow and most runs have no terminal.
    from rich import progress
    from rich.console import Console

    columns = (
        progress.SpinnerColumn(),
        progress.TimeElapsedColumn(),
        progress.BarColumn(20),
        progress.TextColumn("{task.description}", style="dim", markup=False),
    )
    console = Console(stderr=True)
    with progress.Progress(*columns, console=console, transient=True) as display:
        task = display.add_task("", total=None)

        def show(message: str) -> None:
            done, total = count_in(message) or (0, None)
            display.update(task, description=message, completed=done, total=total)

        yield show


# ---- notebooks -----------------------------------------------------------------------


class CellProgress(_MessageHandler):
    """A log handler that shows a cell's messages in a place that `new_place` makes."""

    def __init__(self, new_place: Callable[[], Show]) -> None:
        super().__init__(self._show_in_place)
        self._new_place = new_place
        self._place: Show | None = None

    def end(self, *_: object) -> None:
        super().end()
        if self._place is not None:
            self._place("")
            self._place = None

    def _show_in_place(self, message: str) -> None:
        self._place = self._place or self._new_place()
        self._place(render_progress(message))


def count_in(message: str) -> tuple[int, int] | None:
    """Return the numbers of "3 of 10" in a message."""
    count = COUNT.search(message)
    if count is None:
        return None
    done = int(count[1].replace(",", ""))
    whole = int(count[2].replace(",", ""))
    return done, max(whole, 1)


def render_progress(message: str) -> str:
    count = count_in(message)
    value = f' value="{count[0]}" max="{count[1]}"' if count else ""
    return f"<progress{value}></progress> <span>{escape(message)}</span>"


class CellEvents(Protocol):
    """The events of IPython."""

    def register(self, event: str, function: Callable[..., None], /) -> None: ...


class NotebookShell(Protocol):
    """IPython's shell, as a notebook passes it to an extension."""

    events: CellEvents


def attach_progress(events: CellEvents, new_place: Callable[[], Show]) -> CellProgress:
    """Show progress between IPython's events before and after a cell."""
    progress = CellProgress(new_place)
    events.register("pre_run_cell", progress.begin)
    events.register("post_run_cell", progress.end)
    return progress


def ipython_display() -> Show:
    ipython = import_module("IPython.display")  # only a notebook has it
    handle = ipython.display(ipython.HTML(""), display_id=True)
    return lambda text: handle.update(ipython.HTML(text))
