"""Executors of independent tasks: this process, local processes, or a Dask cluster."""

from __future__ import annotations

import contextlib
import copyreg
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.base.process_pool import end_with_parent, open_process_pool
from firmwright.base.version import VERSION

if TYPE_CHECKING:
    from distributed import Client, Future

_CLUSTER_TIMEOUT_S = 15
Key = TypeVar("Key")
Value = TypeVar("Value")
Task = TypeVar("Task")
Result = TypeVar("Result")


def _frozen(items: dict[Key, Value]) -> MappingProxyType[Key, Value]:
    return MappingProxyType(items)


# The values of a compilation contain frozen mappings.
copyreg.pickle(MappingProxyType, lambda mapping: (_frozen, (dict(mapping),)))


class Executor:
    """Runs picklable tasks of this package's functions, here one by one in-process."""

    def call(self, function: Callable[..., Result], *args: object) -> Result:
        """Call `function` on a machine that runs tasks."""
        return function(*args)

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the position and the result of each task, in order of completion."""
        for index, task in enumerate(tasks):
            yield index, function(task)


class ProcessExecutor(Executor):
    """Runs tasks in other processes of this machine."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        futures = {self._pool.submit(function, task): i for i, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            what = "a worker process ended in the middle of its task."
            hint = "repeat the command: finished measurements are in the log."
            raise ToolFailedError(what, hint=hint) from error


class DaskExecutor(Executor):
    """Runs tasks on the workers of a Dask scheduler, which need this same version."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def call(self, function: Callable[..., Result], *args: object) -> Result:
        result: Result = self._client.submit(function, *args, pure=False).result()
        return result

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        import distributed

        futures = [self._client.submit(function, task, pure=False) for task in tasks]
        arrived: Callable[[list[Future[Result]]], Iterable[Future[Result]]] = (
            distributed.as_completed
        )
        positions = {future.key: index for index, future in enumerate(futures)}
        for future in arrived(futures):
            yield positions[future.key], future.result()


def run_calls(
    executor: Executor, calls: Sequence[Callable[[], Result]]
) -> list[Result]:
    """Return the results in the order of `calls`, partial functions of this package."""
    results = dict(executor.run(operator.call, calls))
    return [results[index] for index in range(len(calls))]


@contextlib.contextmanager
def open_executor(jobs: int, scheduler: str = "") -> Iterator[Executor]:
    if scheduler:
        with _client(scheduler) as client:
            yield DaskExecutor(client)
    elif jobs == 1:
        yield Executor()
    else:
        with open_process_pool(jobs, initializer=end_with_parent) as pool:
            yield ProcessExecutor(pool)


def package_version() -> str:
    return VERSION


@contextlib.contextmanager
def _client(address: str) -> Iterator[Client]:
    try:
        import distributed
    except ImportError as error:
        what = (
            "a Dask cluster requires the package distributed, which is not installed."
        )
        hint = "pip install 'firmwright[dask]'."
        raise ToolMissingError(what, where=address, hint=hint) from error
    connect: Callable[..., Client] = distributed.Client
    try:
        client = connect(address, timeout=_CLUSTER_TIMEOUT_S)
    except (OSError, ValueError) as error:
        what = f"there is no Dask scheduler: {error}."
        hint = "start one with: dask scheduler. It prints its address."
        raise ToolFailedError(what, where=address, hint=hint) from error
    with client:
        check_worker_versions(client, address)
        yield client


def check_worker_versions(client: Client, address: str) -> None:
    versions: dict[str, object] = client.run(package_version, on_error="return")
    if not versions:
        raise ToolFailedError(
            "the Dask scheduler has no workers.",
            where=address,
            hint=f"dask worker {address}.",
        )
    for worker, answer in sorted(versions.items()):
        if answer != VERSION:
            what = f"the worker {worker} has not firmwright {VERSION}: {answer}."
            hint = "the same version of firmwright on every worker."
            raise ToolFailedError(what, where=address, hint=hint)
