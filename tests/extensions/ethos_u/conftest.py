"""The program that runs command streams on the Ethos-U model, compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extensions.ethos_u.command_streams import build


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("ethos_u"))
