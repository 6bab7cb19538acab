"""Executors of measurement tasks: this process, local processes, or a Dask cluster."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeAlias

from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.base.version import VERSION
from firmwright.ir.tuning_records import MeasurementContext
from firmwright.pipeline import Options
from firmwright.tune.kernel_measurement import (
    KernelResult,
    MeasurementTask,
    measurement_context,
    run_task,
)

TaskResults: TypeAlias = tuple[int, tuple[KernelResult, ...]]
_CLUSTER_TIMEOUT_S = 15
_FAREWELL_S = 10.0


class Executor(Protocol):
    """Runs the measurement tasks of a search."""

    def measurement_context(self, options: Options, method: str) -> MeasurementContext:
        """Return the conditions that affect counts on the machines that run tasks."""

    def run(self, tasks: Sequence[MeasurementTask]) -> Iterator[TaskResults]: ...


class LocalExecutor:
    """Runs tasks one after another in this process."""

    def measurement_context(self, options: Options, method: str) -> MeasurementContext:
        return measurement_context(options, method)

    def run(self, tasks: Sequence[MeasurementTask]) -> Iterator[TaskResults]:
        for index, task in enumerate(tasks):
            yield index, run_task(task)


class ProcessExecutor(LocalExecutor):
    """Runs tasks in other processes of this machine."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run(self, tasks: Sequence[MeasurementTask]) -> Iterator[TaskResults]:
        futures = {self._pool.submit(run_task, task): i for i, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise ToolFailedError(
                "a worker process ended in the middle of its task.",
                hint="repeat the command: finished measurements are in the log.",
            ) from error


class DaskExecutor:
    """Runs tasks on the workers of a Dask scheduler, which need this version of Firmwright."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def measurement_context(self, options: Options, method: str) -> MeasurementContext:
        context: MeasurementContext = self._client.submit(
            measurement_context, options, method, pure=False
        ).result()
        return context

    def run(self, tasks: Sequence[MeasurementTask]) -> Iterator[TaskResults]:
        import distributed

        futures = [self._client.submit(run_task, task, pure=False) for task in tasks]
        arrived: Any = distributed.as_completed
        positions = {future.key: index for index, future in enumerate(futures)}
        for future in arrived(futures):
            yield positions[future.key], future.result()


@contextlib.contextmanager
def open_executor(jobs: int, scheduler: str = "") -> Iterator[Executor]:
    if scheduler:
        with _client(scheduler) as client:
            yield DaskExecutor(client)
    elif jobs == 1:
        yield LocalExecutor()
    else:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent)
        try:
            yield ProcessExecutor(pool)
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Start a thread that ends the task and the process when the parent ends.

    The parent handles interrupts and lets running tasks finish.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os.kill(os.getpid(), signal.SIGTERM)  # closes sessions and their emulators
        time.sleep(_FAREWELL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _leave(*_: object) -> None:
    raise SystemExit(1)


def package_version() -> str:
    return VERSION


@contextlib.contextmanager
def _client(address: str) -> Iterator[Any]:
    try:
        import distributed
    except ImportError as error:
        raise ToolMissingError(
            "a Dask cluster requires the package distributed, which is not installed.",
            where=address,
            hint="pip install 'firmwright[dask]'.",
        ) from error
    connect: Any = distributed.Client
    try:
        client = connect(address, timeout=_CLUSTER_TIMEOUT_S)
    except (OSError, ValueError) as error:
        raise ToolFailedError(
            f"there is no Dask scheduler: {error}.",
            where=address,
            hint="start one with: dask scheduler. It prints its address.",
        ) from error
    with client:
        check_worker_versions(client, address)
        yield client


def check_worker_versions(client: Any, address: str) -> None:
    versions: dict[str, object] = client.run(package_version, on_error="return")
    if not versions:
        raise ToolFailedError(
            "the Dask scheduler has no workers.", where=address, hint=f"dask worker {address}."
        )
    for worker, answer in sorted(versions.items()):
        if answer != VERSION:
            raise ToolFailedError(
                f"the worker {worker} has not firmwright {VERSION}: {answer}.",
                where=address,
                hint="the same version of firmwright on every worker.",
            )
