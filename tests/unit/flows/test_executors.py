"""Executors report unusable workers in one sentence."""

from __future__ import annotations

import pytest

from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.base.version import VERSION
from firmwright.flows import executors
from firmwright.flows.executors import Executor


def test_one_job_uses_the_local_executor() -> None:
    with executors.open_executor(1) as crew:
        assert type(crew) is Executor


def test_unreachable_scheduler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "_CLUSTER_TIMEOUT_S", 0.5)
    with (
        pytest.raises(ToolFailedError, match="there is no Dask scheduler") as raised,
        executors.open_executor(1, "tcp://127.0.0.1:1"),
    ):
        pass
    assert raised.value.where == "tcp://127.0.0.1:1"


def test_missing_dask_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with (
        pytest.raises(ToolMissingError) as raised,
        executors.open_executor(1, "tcp://127.0.0.1:1"),
    ):
        pass
    assert "firmwright[dask]" in raised.value.hint


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, "the Dask scheduler has no workers."),
        (
            {"tcp://a": VERSION, "tcp://b": "0.0.1"},
            "the worker tcp://b has not firmwright",
        ),
        (
            {"tcp://a": ModuleNotFoundError("No module")},
            "the worker tcp://a has not firmwright",
        ),
    ],
)
def test_every_worker_of_a_cluster_has_this_version(
    answers: dict[str, object], message: str
) -> None:
    class Client:
        def run(self, ask: object, on_error: str) -> dict[str, object]:
            assert on_error == "return"
            return answers

    with pytest.raises(ToolFailedError, match=message):
        executors.check_worker_versions(Client(), "tcp://c")
