"""The command line in this process: its exit code, stdout and stderr."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from firmwright.cli.main import main


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def fw(capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Return a function that runs a command: `fw("verify", path)`."""

    def run(*words: object) -> Said:
        status = main([str(word) for word in words])
        captured = capfd.readouterr()
        return Said(status, captured.out, captured.err)

    return run
