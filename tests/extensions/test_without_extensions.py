"""The core is a compiler without any extension, and says what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firmwright.base import extensions
from firmwright.cli.main import verbs


@pytest.fixture(autouse=True)
def _no_extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "entry_points", lambda group: [])


def test_verbs_and_choices_of_the_core_remain(fw: Callable[..., Any]) -> None:
    assert {"compile", "build", "export", "flash", "partition", "verify"} <= {*verbs()}
    assert {"sbom", "tune", "mlperf"}.isdisjoint(verbs())
    assert "--firmware {serial}" in fw("build", "--help").out
    for words in (("flash",), ("export",), ("partition",), ("--help",)):
        said = fw(*words, "--help").out.lower()
        assert [name for name in ("mcuboot", "mlperf", "sbom") if name in said] == []


def test_a_model_compiles(
    fw: Callable[..., Any], digits_path: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    assert (
        fw("compile", digits_path, "--board", "mps2-an386", "-o", project).status == 0
    )
    assert (project / "runtime" / "fwr_server.c").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tune", "--out", "log"), "there is no verb 'tune'."),
        (("export", "--format", "cmake"), "argument --format: 'cmake' is not one of"),
        (
            ("build", "--firmware", "mlperf"),
            "argument --firmware: 'mlperf' is not one of serial.",
        ),
        (
            ("flash", "--runner", "mcuboot"),
            "argument --runner: 'mcuboot' is not one of st-flash",
        ),
        (
            ("compile", "--partition", "collage"),
            "--partition must be eager, none or a file",
        ),
    ],
)
def test_what_an_extension_adds_is_refused_without_it(
    words: tuple[str, ...], said: str, fw: Callable[..., Any], digits_path: Path
) -> None:
    refused = fw(words[0], digits_path, *words[1:])
    assert refused.status == 2
    assert said in refused.err
