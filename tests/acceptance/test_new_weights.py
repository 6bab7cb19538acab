"""New weights for the code of a firmware: `--update-of` and `--weight-independent`.

The reference for results is LiteRT, for code the text of the C files without their
constants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import firmwright as fw
from firmwright.base.errors import MismatchError, UsageError
from firmwright.cli.main import main
from firmwright.cli.option_values import const_pool
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation
from tests.ops import retrained_model as retrained
from tests.ops.int4_model import with_int4_weights

ROOT = Path(__file__).parents[2]
M4, M55 = "mps2-an386", "mps3-an547"
BOARDS = [M4, pytest.param(M55, marks=pytest.mark.deep)]
PSRAM = {"const_pools": (const_pool("psram:external"),)}
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
ID = re.compile(r"(_id\[16\] = \{|\.(?:model_)?id = \{)[^}]*\}")
CRC32 = re.compile(r"(_CRC32) 0x[0-9a-f]{8}u")
SETS: dict[str, tuple[retrained.Change, retrained.Change | None]] = {
    "near": (retrained.near, retrained.near),
    "some lowest": (retrained.with_some_lowest, None),
    "shuffled": (retrained.shuffled, retrained.shuffled),
    "random": (retrained.random, None),
    "lowest": (retrained.lowest, None),
    "zeros": (retrained.zeros, retrained.zeros),
    "dead channels": (retrained.with_dead_channels, retrained.shuffled),
    "four bits": (retrained.small, None),
    "large biases": (retrained.shuffled, retrained.large_biases),
}


def file_with(source: bytes, name: str, folder: Path) -> Path:
    change, biases = SETS[name]
    file = folder / f"{name.replace(' ', '_')}.tflite"
    file.write_bytes(retrained.with_weights(source, change, biases=biases))
    return file


def compiled(file: Path, board: str, **options: Any) -> Compilation:
    return compile_for(load_model(file), board, **{"name": "net", **options})


def code_of(project: Compilation) -> dict[str, str]:
    """Return the C files without comments, constants, model id and checksums."""
    code: dict[str, str] = {}
    for path, content in project.project().files.items():
        is_data = path.endswith(("_weights.h", ".bin", ".inc", ".json"))
        if (
            isinstance(content, str)
            and path.startswith(("model/", "firmware/"))
            and not is_data
        ):
            text = " ".join(COMMENT.sub("", content).split())
            code[path] = CRC32.sub(r"\1", ID.sub(r"\1}", text))
    return code


def layout_of(project: Compilation) -> list[tuple[object, ...]]:
    constants = project.module.constants.values()
    return [(one.name, one.dtype, one.shape, one.pool) for one in constants]


def assert_same_code(one: Compilation, other: Compilation) -> None:
    assert code_of(one) == code_of(other)
    assert one.module.plan == other.module.plan
    assert layout_of(one) == layout_of(other)


@pytest.mark.deep
@pytest.mark.parametrize("board", BOARDS)
def test_weight_independent_code_suits_every_weight_set(
    board: str, digits_path: Path, tmp_path: Path, deep: bool
) -> None:
    source = digits_path.read_bytes()
    first = compiled(digits_path, board, weight_independent=True)
    for name in SETS if deep else ("random", "dead channels"):
        file = file_with(source, name, tmp_path)
        assert_same_code(first, compiled(file, board, weight_independent=True))


@pytest.mark.qemu("arm")
@pytest.mark.parametrize("board", BOARDS)
def test_weight_independent_code_equals_litert(
    board: str, digits_path: Path, tmp_path: Path, deep: bool
) -> None:
    source = digits_path.read_bytes()
    for name in SETS if deep else ("large biases",):
        file = file_with(source, name, tmp_path)
        assert verify(
            compiled(file, board, weight_independent=True), samples=4
        ).exact, name


@pytest.mark.deep
@pytest.mark.parametrize("name", ["digits_float.tflite", "int4"])
def test_weight_independent_code_of_floats_and_int4(
    name: str, digits_path: Path, tmp_path: Path, deep: bool
) -> None:
    path = digits_path.with_name(name)
    source = (
        path.read_bytes()
        if path.is_file()
        else with_int4_weights(digits_path.read_bytes())
    )
    (tmp_path / "first.tflite").write_bytes(source)
    first = compiled(tmp_path / "first.tflite", M4, weight_independent=True)
    if name == "int4":
        other = tmp_path / "other.tflite"
        wide = retrained.with_weights(digits_path.read_bytes(), retrained.shuffled)
        other.write_bytes(with_int4_weights(wide))
        others = [other]
    else:
        others = [
            file_with(source, n, tmp_path) for n in (("random", "zeros")[: 1 + deep])
        ]
    for file in others:
        assert_same_code(first, compiled(file, M4, weight_independent=True))


@pytest.mark.parametrize("options", [{}, pytest.param(PSRAM, marks=pytest.mark.deep)])
def test_an_update_keeps_code_plan_and_layout_or_names_the_layer(
    options: dict[str, Any], digits_path: Path, tmp_path: Path, deep: bool
) -> None:
    source = digits_path.read_bytes()
    old = compiled(digits_path, M4, **options)
    old.save(tmp_path / "old")
    refused = {}
    for name in SETS if deep else ("near", "some lowest"):
        file = file_with(source, name, tmp_path)
        try:
            new = compile_for(load_model(file), update_of=tmp_path / "old")
        except MismatchError as error:
            refused[name] = str(error)
            continue
        assert_same_code(old, new)
        assert verify(compile_for(new.imported, "host", **options), samples=1).exact
    assert "near" not in refused
    reason = "conv2d_0: the kernel to keep, dsp.conv2d.im2col pixels=2, requires that no weight is -128"
    assert f"{reason}; the new weights contain -128" in refused["some lowest"]


@pytest.mark.parametrize("option", [["--optimize", "speed"], ["--board", M55]])
def test_an_update_with_other_options_is_refused(
    option: list[str],
    digits_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    compiled(digits_path, M4).save(tmp_path / "old")
    command = [
        "compile",
        str(digits_path),
        "--update-of",
        str(tmp_path / "old"),
        *option,
    ]
    assert main(command) == UsageError.exit_code
    assert "the code to update" in capsys.readouterr().err


def test_a_project_without_the_record_is_refused(
    digits_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(digits_path, M4).save(tmp_path / "old")
    file = tmp_path / "old" / "metadata.json"
    facts = json.loads(file.read_text())
    del facts["choices"]
    file.write_text(json.dumps(facts))
    command = ["compile", str(digits_path), "--update-of", str(file)]
    assert main(command) == UsageError.exit_code
    error = " ".join(capsys.readouterr().err.split())
    assert (
        "it does not record the choices of its compilation, as older versions did not"
        in error
    )


def test_another_network_is_refused_by_operator(
    digits_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(digits_path, M4).save(tmp_path / "old")
    other = digits_path.with_name("digits_float.tflite")
    command = ["compile", str(other), "--update-of", str(tmp_path / "old")]
    assert main(command) == MismatchError.exit_code
    assert "conv2d_0" in capsys.readouterr().err


def test_a_package_takes_new_weights_and_reproduces(
    digits_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, new = tmp_path / "package", tmp_path / "new"
    options = ["--board", M4, "--format", "cmake", "--const-pool", "psram:external"]
    assert main(["export", str(digits_path), *options, "-o", str(package)]) == 0
    file = file_with(digits_path.read_bytes(), "near", tmp_path)
    assert (
        main(["compile", str(file), "--update-of", str(package), "-o", str(new)]) == 0
    )
    assert main(["reproduce", str(new), str(file)]) == 0
    old_pool, new_pool = (
        next(folder.rglob("*_psram.bin")).read_bytes() for folder in (package, new)
    )
    assert (len(old_pool), old_pool[-16:]) == (len(new_pool), new_pool[-16:])
    assert old_pool != new_pool
    capsys.readouterr()


@pytest.mark.models
@pytest.mark.qemu("arm")
@pytest.mark.deep
@pytest.mark.parametrize("board", BOARDS)
def test_the_keyword_model_takes_new_weights(
    board: str, model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    file = model_path("kws_ref_model.tflite")
    first = compiled(file, board, weight_independent=True)
    for name in ("shuffled", "random"):
        new = compiled(
            file_with(file.read_bytes(), name, tmp_path), board, weight_independent=True
        )
        assert_same_code(first, new)
        assert fw.verify(new, samples=3).exact
