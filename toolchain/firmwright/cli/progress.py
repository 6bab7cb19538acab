"""Progress from log messages: a spinner on a terminal, lines with `--verbose`, otherwise nothing.

All output goes to stderr. The spinner is removed when the work is done.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator

ROOT = "firmwright"


class _Spinner(logging.Handler):
    """A log handler that shows the last message; `update` changes the spinner's text."""

    def __init__(self, update: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._update = update

    def emit(self, record: logging.LogRecord) -> None:
        self._update(record.getMessage())


@contextlib.contextmanager
def show_progress(*, quiet: bool, verbose: bool) -> Iterator[None]:
    logger = logging.getLogger(ROOT)
    with contextlib.ExitStack() as stack:
        if verbose:
            handler: logging.Handler = logging.StreamHandler(sys.stderr)
        elif sys.stderr.isatty() and not quiet:
            handler = _Spinner(stack.enter_context(_spinner()))
        else:
            yield
            return
        before = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)


@contextlib.contextmanager
def _spinner() -> Iterator[Callable[[str], None]]:
    # Imported here because it is slow and most runs have no terminal.
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as status:
        yield lambda message: status.update(Text(message, style="dim"))
