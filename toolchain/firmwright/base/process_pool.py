"""Pools of Python processes that run functions of this package.

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
from typing import Final, Literal

from firmwright.base.import_path import python_path

_FAREWELL_S: Final = 10.0


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
    safe = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(python_path())}
    with _environment(safe):
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
