"""The project API: ours on the host and in QEMU, and one that a vendor might write."""

import subprocess
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.device.process_transport import ProcessTransport
from firmwright.flows.board import project_api
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.board.project_api import (
    BuiltinProject,
    ProjectApi,
    ProjectChoices,
    ProjectInfo,
    find_project_api,
    open_project,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.pipeline import Compilation


class OneCommand:
    """A vendor's: model and runtime by one call of this machine's C compiler."""

    def __init__(self) -> None:
        self.line: ProcessTransport | None = None

    def info(self) -> ProjectInfo:
        return ProjectInfo("one-command", "gcc and nothing else")

    def generate(
        self, compiled: Compilation, directory: Path, options: ProjectChoices
    ) -> None:
        compiled.save(directory)

    def build(self, directory: Path, options: ProjectChoices) -> None:
        found = [*directory.glob("runtime/**/*.c"), *directory.glob("model/*.c")]
        sources = sorted(map(str, found))
        folders = ("runtime", "runtime/port", "runtime/port/host", "model", "board")
        includes = [f"-I{directory / folder}" for folder in folders]
        words = ["gcc", "-std=c99", "-O1", "-ffp-contract=off", *includes, *sources]
        app = str(directory / "firmware/fwr_app.c")
        subprocess.run([*words, app, "-lm", "-o", str(directory / "app")], check=True)

    def flash(self, directory: Path, options: ProjectChoices) -> None:
        pass

    def open_transport(self, directory: Path, options: ProjectChoices) -> None:
        self.line = ProcessTransport([directory / "app"])

    def close_transport(self) -> None:
        if self.line is not None:
            self.line.close()

    def read(self, limit: int, timeout_s: float) -> bytes:
        assert self.line is not None
        return self.line.read(limit, timeout_s)

    def write(self, data: bytes) -> None:
        assert self.line is not None
        self.line.write(data)

    def reset(self) -> None:
        raise UsageError("it cannot.")

    def monitor(self, timeout_s: float) -> bytes:
        return self.read(4096, timeout_s)


def first_output(session: ModelSession) -> list[int]:
    (sample,) = generate_samples(session.compiled.module.io.inputs, 1, 0).samples
    (outputs,) = session.run_all([sample])
    return [int(v) for v in np.ravel(next(iter(outputs.values())))]


@pytest.mark.host_c
def test_vendor_project_gives_the_same_outputs(
    tmp_path: Path, digits_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_for(load_model(digits_path), "host")
    with open_session(compiled) as session:
        expected = first_output(session)
    offered = [
        EntryPoint("one-command", f"{__name__}:OneCommand", "firmwright.project_api")
    ]
    monkeypatch.setattr(project_api, "entry_points", lambda group: offered)
    theirs: ProjectApi = find_project_api("one-command")
    for api in (find_project_api(), theirs):
        with open_project(api, compiled, tmp_path / api.info().name) as session:
            assert first_output(session) == expected
    with pytest.raises(
        UsageError, match=r"no project API 'x'\. Try: use one of builtin, one-command"
    ):
        find_project_api("x")


@pytest.mark.host_c
def test_builtin_project_resets_monitors_and_refuses_unknown_options(
    tmp_path: Path, digits_path: Path
) -> None:
    api = BuiltinProject()
    compiled = compile_for(load_model(digits_path), "host")
    with pytest.raises(UsageError, match="no option 'color'"):
        api.generate(compiled, tmp_path, {"color": "red"})
    with pytest.raises(UsageError, match="the transport is not open"):
        api.write(b"x")
    api.generate(compiled, tmp_path, {})
    api.flash(tmp_path, {})
    api.open_transport(tmp_path, {})
    api.write(b"\0")
    api.reset()
    assert isinstance(api.monitor(0.01), bytes)
    api.close_transport()
    api.close_transport()
