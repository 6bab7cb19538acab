"""Python processes that run functions of this package: pools, and single ones.

`child_process` starts all other processes.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import Final, Generic, Literal, TypeVar

from firmwright.base.import_path import python_path

_FAREWELL_S: Final = 10.0
Message = TypeVar("Message")
Send = Callable[[Message], None]
"""What a function calls to send a message to the process that started it."""


@contextlib.contextmanager
def open_process_pool(
    jobs: int,
    method: Literal["spawn", "forkserver"] = "spawn",
    *,
    initializer: Callable[[], None] | None = None,
    tasks_per_child: int | None = None,
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose interpreters do not search the current folder for modules.

    Variables of this process change while the pool is open, since multiprocessing
    starts further interpreters at any time.
    """
    context = multiprocessing.get_context(method)
    with _environment(_safe_path()):
        pool = ProcessPoolExecutor(
            jobs,
            mp_context=context,
            initializer=initializer,
            max_tasks_per_child=tasks_per_child,
        )
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


class ReportingProcess(Generic[Message]):
    """A process that runs `work`, which sends messages while it runs.

    `end` stops it at any time. It ends with this process, too.
    """

    def __init__(self, work: Callable[[Send[Message]], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_report, args=(sender, work))
        with _environment(_safe_path()):
            self._process.start()
        sender.close()

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def messages(self) -> list[Message]:
        """Return the messages that have arrived since the last call."""
        found: list[Message] = []
        with contextlib.suppress(EOFError, OSError):
            while self._receiver.poll():
                found.append(self._receiver.recv())
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.join(_FAREWELL_S)
        self._receiver.close()


def _report(sender: Connection, work: Callable[[Send[Message]], None]) -> None:
    end_with_parent()
    work(sender.send)


def _safe_path() -> dict[str, str]:
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(python_path())}


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def end_with_parent() -> None:
    """Start a thread that ends this process with its parent.

    The parent handles interrupts.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os.kill(os.getpid(), signal.SIGTERM)  # closes sessions and their emulators
        time.sleep(_FAREWELL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
