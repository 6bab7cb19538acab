"""A module saved after any pass, read back and compiled on gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.conformance.case_tables import conformance_cases
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model, save_module
from firmwright.flows.verify.verification import verify
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.pipeline import Compilation, Options, compile_model
from tests.onnx.onnx_models import Net
from tests.ops.tflite_writer import write_cases

BOARD = "mps2-an386"
INT8 = ("kws", "ad", "ic", "vww", "ww")
LATE = {"externalize-constants", "final-dce"}
"""The passes of constants that are not linked, and those after."""
SOME = {
    "",
    "sink-transposes",
    "reorder-calls",
    "elide-copies",
    "lower-select",
    "usmp",
    "outline-common-kernels",
    "dedupe-functions",
}
FLOAT = ("kws_float", "ad_float", "ic_float", "vww_float")

Compile = Callable[..., Compilation]


def softmax_int16() -> tuple[str, bytes]:
    cases = conformance_cases("softmax")
    return "net.tflite", write_cases(
        [next(c for c in cases if c.name.endswith("row2_int16"))]
    )


def attention() -> tuple[str, bytes]:
    """Return an attention that reads as many keys as an input says."""
    net = Net(opset=24)
    q, k, v = (
        net.input(n, s)
        for n, s in (("q", (1, 3, 24)), ("k", (1, 9, 12)), ("v", (1, 9, 8)))
    )
    length = net.weight(np.array([7], np.int64))
    attrs = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}
    return "net.onnx", net.model(
        net.node("Attention", q, k, v, "", "", "", length, **attrs)
    )


def test_digits_compilation_resumes_after_every_pass(
    compiled: Compile, deep: bool
) -> None:
    """By default after each pass that does much, and some of the others."""
    check_every_stage(
        compiled("digits", board=BOARD), Options(board=BOARD), None if deep else SOME
    )


def test_unlinked_constants_survive_every_pass(compiled: Compile) -> None:
    options = {"board": BOARD, "link_params": False}
    check_every_stage(compiled("digits", **options), Options(**options), LATE)


@pytest.mark.models
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n == "ad" else pytest.mark.deep)
        for n in INT8 + FLOAT
    ],
)
def test_compilation_resumes_after_every_pass(
    name: str, compiled: Compile, deep: bool
) -> None:
    stages = None if deep else {"lower-select", "usmp"}
    check_every_stage(compiled(name, board=BOARD), Options(board=BOARD), stages)


@pytest.mark.host_c
@pytest.mark.parametrize("model", [softmax_int16, attention])
def test_lowered_texts_are_verified_and_compiled_with_trust(
    model: Callable[[], tuple[str, bytes]], tmp_path: Path
) -> None:
    """Their indices stay within bounds because arithmetic does not overflow."""
    name, data = model()
    (tmp_path / name).write_bytes(data)
    saved = {stage: tmp_path / f"{stage}.fwir" for stage in ("lower-select", "usmp")}

    def watch(stage: str, module: IRModule) -> None:
        if stage in saved:
            save_module(module, saved[stage])

    whole = compile_for(
        load_model(tmp_path / name, name="net"), board="host", watch=watch
    )
    for file in saved.values():
        with pytest.raises(UsageError, match=r"lowered functions: .*--trust"):
            compile_for(load_model(file), board="host")
        again = compile_for(load_model(file, trust=True), board="host")
        assert files_of(again) == files_of(whole)
    found = verify(again, samples=3)
    assert (found.samples, found.mismatches) == (3, 0)
    assert "numpy" not in found.reference


def check_every_stage(
    whole: Compilation, options: Options, only: Set[str] | None = None
) -> None:
    saved = {"": print_module(whole.imported)}

    def watch(name: str, module: IRModule) -> None:
        saved[name] = print_module(module)

    compile_model(whole.imported, options, watch=watch)
    assert len(saved) > 10, "the passes are not seen"
    for name in saved if only is None else only:
        module = parse_module(saved[name], f"{name}.fwir")
        assert print_module(module) == saved[name], name
        again = compile_model(module, options)
        assert files_of(again) == files_of(whole), f"after {name or 'import'}"


def files_of(compiled: Compilation) -> dict[str, object]:
    """Return the project's files; a module with kernels records no choice of them."""
    files: dict[str, object] = dict(compiled.tree.files)
    facts = json.loads(str(files["metadata.json"]))
    facts.pop("choices", None)
    return {**files, "metadata.json": facts}
