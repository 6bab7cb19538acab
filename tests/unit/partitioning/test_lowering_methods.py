"""Methods with the decorator `lowers`: rows of a backend's table with their own code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import firmwright as fw
from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.base.errors import UsageError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.samples.reference_outputs import run_interpreter
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.ir.graph.patterns import constant, op, wildcard
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.targets.backend import Backend, PatternEntry, lowers
from tests.backends.toy_backends import chain

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.usefixtures("no_backends")


def curve(name: str) -> Intrinsic:
    return Intrinsic(
        name=f"npu_{name}",
        operands=(
            Operand("x", "ptr", FLOAT32, "r"),
            Operand("y", "ptr", FLOAT32, "w"),
            Operand("count", "imm", INT32),
        ),
        meaning=lambda x, y, count: getattr(np, name)(x).reshape(y.shape),
        portable="",
        doc="A function of each element.",
        symbol=f"npu_{name}",
    )


class Curves(Backend):
    name = "npu"
    intrinsics = (curve("tanh"), curve("sin"), curve("exp"))

    def is_small(self, match):
        return match.ops[-1].output.elements < 100

    def _run(self, kernel, name):
        x, y = kernel.inputs[0], kernel.outputs[0]
        kernel.run(f"npu_{name}", [x, y, x.elements])

    @lowers("tanh", takes=is_small)
    def squash(self, kernel):
        self._run(kernel, "tanh")

    @lowers(op("sin"))
    def wave(self, kernel):
        self._run(kernel, "sin")


def entries(backend: type[Backend]) -> list[str]:
    fw.register_backend(backend)
    module = chain(("tanh", "x", "a"), ("sin", "a", "b"), ("exp", "b", "c"))
    compiled = compile_for(Model(module), target="npu")
    batch = generate_samples(compiled.module.io.inputs, 2)
    for sample, outputs in zip(
        batch.samples,
        run_interpreter(compiled.module, batch.samples).outputs,
        strict=True,
    ):
        expected = np.exp(np.sin(np.tanh(sample["x"])))
        np.testing.assert_allclose(outputs["c"], expected, rtol=1e-5)
    done = compiled.module.functions.values()
    return [f"{f.name}" for f in done if f.attrs.get("target") == "npu"]


def test_each_method_makes_the_kernels_of_its_row() -> None:
    assert [entry.name for entry in Curves().table] == ["npu.squash", "npu.wave"]
    assert entries(Curves) == ["npu_tanh_0", "npu_sin_0"]


def test_the_class_of_the_page_has_its_rows() -> None:
    text = (ROOT / "docs" / "reference" / "adding-an-accelerator.md").read_text()
    (block,) = re.findall(r"```python\n(from [^`]*class Npu2.*?)```", text, re.DOTALL)
    scope = {"op": op, "wildcard": wildcard, "constant": constant}
    exec(block, scope)
    kind = scope["Npu2"]
    assert isinstance(kind, type)
    assert [entry.name for entry in kind().table] == ["npu2.squash", "npu2.conv"]


def test_rows_of_patterns_come_first_and_have_the_code_of_lower() -> None:
    class Both(Curves):
        def patterns(self):
            return [PatternEntry("exponential", op("exp"))]

        def lower(self, kernel):
            self._run(kernel, "exp")

    assert next(entry.name for entry in Both().table) == "npu.exponential"
    assert entries(Both) == ["npu_tanh_0", "npu_sin_0", "npu_exp_0"]


def test_a_subclass_replaces_a_row_or_removes_it() -> None:
    class Fewer(Curves):
        wave = None

        @lowers("tanh", takes=lambda backend, match: False)
        def squash(self, kernel):
            raise AssertionError

    assert [entry.name for entry in Fewer().table] == ["npu.squash"]
    assert entries(Fewer) == []


@pytest.mark.parametrize("change", [{"merge_regions": True}, {"generate": print}])
def test_other_code_of_the_whole_region_is_refused(change: dict[str, object]) -> None:
    kind = type("Mixed", (Curves,), change)
    with pytest.raises(
        UsageError, match="methods with `lowers` make kernels of single"
    ):
        fw.register_backend(kind)
