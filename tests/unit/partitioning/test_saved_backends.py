"""Lowered modules compile to the same bytes without their backends' plug-ins."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmwright.base.errors import ModelError, PluginError, UsageError
from firmwright.extensions.cmsis_nn.backend import PATH_VARIABLE
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model, save_module
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.patterns import op
from firmwright.ir.module import IRModule, Pass
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.target_kind import PassSelection
from tests.backends.toy_backends import Toy, chain

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
LOWERED = ("relay-to-tir", "usmp")


def saved(
    model: Model, folder: Path, **given: object
) -> tuple[dict[str, Path], dict[str, object]]:
    """Compile, saving after each pass; return the files by pass and the project."""
    paths: dict[str, Path] = {}

    def watch(name: str, module: IRModule) -> None:
        paths[name] = folder / f"{name}.fwir"
        if name in (*LOWERED, "partition", "relay-to-runtime", "final-dce"):
            save_module(module, paths[name])

    return paths, dict(compile_for(model, watch=watch, **given).tree.files)


def without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BACKENDS, "_known", {})
    monkeypatch.setattr(
        "firmwright.targets.backend_registry.entry_points", lambda group: []
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "fixture"), [("npu1 -columns=200", "npu1"), ("squeeze", "squeeze")]
)
def test_a_saved_module_contains_everything_from_the_plugin(
    name: str, fixture: str, request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    request.getfixturevalue(fixture)
    given = {"target": name, "board": "mps2-an386", "planner": "greedy_by_size"}
    paths, files = saved(load_model(DIGITS), tmp_path, **given)
    first = "relay-to-runtime" if name == "squeeze" else "relay-to-tir"
    with_plugin = compile_for(load_model(paths["relay-to-tir"], trust=True))
    assert with_plugin.tree.files == files
    without_plugins(monkeypatch)
    for stage in dict.fromkeys((first, *LOWERED)):
        assert compile_for(load_model(paths[stage], trust=True)).tree.files == files
    again = tmp_path / "again.fwir"
    save_module(load_model(paths["usmp"], trust=True).module, again)
    assert again.read_text() == paths["usmp"].read_text()
    hint = (
        f"unknown target kind '{fixture}'. Try: .* install the package of that backend"
    )
    with pytest.raises(UsageError, match=hint):
        compile_for(load_model(paths["partition"]))


def test_devices_and_visible_pools_are_recorded(
    no_backends: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    toy = Toy({"sum": op("add")})
    toy.device, toy.visible_pools = "npu0", ("tcm",)
    BACKENDS.register(toy)
    model = Model(chain(("add", "x z", "a"), ("tanh", "a", "b")))
    pools = tuple(PoolInfo(name, 4096) for name in ("sram", "tcm"))
    paths, files = saved(model, tmp_path, target="toy", pools=pools)
    assert "npu0" in str(files["model/toy.c"])
    without_plugins(monkeypatch)
    for stage in LOWERED:
        again = compile_for(load_model(paths[stage], trust=True)).tree.files
        assert {**again, "metadata.json": ""} == {
            **files,
            "metadata.json": "",
        }  # the pools' origin


def test_library_of_a_saved_module_is_not_needed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(
        PATH_VARIABLE, str(ROOT / "tests" / "extensions" / "cmsis_nn" / "stand_in")
    )
    given = {"target": "cmsis-nn", "numerics": "tflm", "board": "mps2-an386"}
    paths, files = saved(load_model(DIGITS), tmp_path, **given)
    monkeypatch.delenv(PATH_VARIABLE)
    for stage in LOWERED:
        assert compile_for(load_model(paths[stage], trust=True)).tree.files == files


@pytest.mark.parametrize("place", ["after_planning", "usmp"])
def test_a_later_pass_of_a_missing_plugin_is_an_error(
    place: str, no_backends: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mine = (Pass("mine", lambda module: module),)
    toy = Toy({"sum": op("add")})
    if place == "usmp":
        toy.passes = PassSelection(only=frozenset(), after={"usmp": mine})
    else:
        toy.own_phases = {"after_planning": mine}
    BACKENDS.register(toy)
    paths, files = saved(Model(chain(("add", "x z", "a"))), tmp_path, target="toy")
    without_plugins(monkeypatch)
    with pytest.raises(PluginError) as error:
        compile_for(load_model(paths["relay-to-tir"], trust=True))
    assert str(error.value) == (
        f"the pass mine ({place}) cannot run: the backend toy is not installed. "
        "Try: install the package of this backend."
    )
    assert compile_for(load_model(paths["final-dce"], trust=True)).tree.files == files


def test_a_malformed_record_is_reported(tmp_path: Path, no_backends: None):
    BACKENDS.register(Toy({"sum": op("add")}))
    paths, _ = saved(Model(chain(("add", "x z", "a"))), tmp_path, target="toy")
    text = paths["usmp"].read_text()
    for old, new in (('["name", "toy"]', '["name", 7]'), ('["name", "toy"]', '"name"')):
        assert old in text
        paths["usmp"].write_text(text.replace(old, new))
        with pytest.raises(
            ModelError, match="the module's attribute backends is malformed"
        ):
            load_model(paths["usmp"], trust=True)
