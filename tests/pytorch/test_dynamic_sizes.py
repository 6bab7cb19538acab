"""Programs of torch.export with a dynamic size: its bounds are those of the program."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import ModelError, UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.frontends.onnx import ModelOverrides
from firmwright.frontends.pytorch import declared_overrides
from firmwright.frontends.pytorch.dynamic_sizes import size_at, symbol_of
from firmwright.ir.bounded_axis import BoundedAxis

FOLDER = Path(__file__).parent / "dynamic"
PROGRAM = FOLDER / "tagger.pt2"
S27 = "Symbol('s27', positive=True, integer=True)"


def changed(words: Mapping[str, str]) -> bytes:
    """Return the archive with other texts in its program."""
    source, stream = zipfile.ZipFile(PROGRAM), io.BytesIO()
    with zipfile.ZipFile(stream, "w") as target:
        for info in source.infolist():
            content = source.read(info)
            if info.filename.endswith("model.json"):
                for old, new in words.items():
                    assert old.encode() in content
                    content = content.replace(old.encode(), new.encode())
            target.writestr(info, content)
    return stream.getvalue()


@pytest.mark.host_c
def test_every_size_of_a_program_equals_pytorch() -> None:
    model = load_model(PROGRAM)
    compiled = compile_for(model)
    axis = compiled.module.settings.axis
    assert axis == BoundedAxis("size", 3, 12)
    compared = 0
    recorded = np.load(FOLDER / "tagger.npz")
    with open_session(compiled, in_process=True) as session:
        for size in axis.sizes:
            inputs = {n: recorded[f"{size}/{n}"] for n in ("x", "gates")}
            outputs = session.run(inputs)
            assert isinstance(outputs, dict)
            floats = [a for a in outputs.values() if a.dtype == np.float32]
            for index, found in enumerate(floats):
                expected = recorded[f"{size}/{index}"]
                bound = 1e-4 * np.abs(expected).max() + 1e-5
                np.testing.assert_allclose(found, expected, 0, bound)
                compared += expected.size
    assert compared == 975


def test_a_shape_of_the_user_fixes_or_narrows_the_size() -> None:
    fixed = load_model(PROGRAM, overrides=ModelOverrides({"x": (1, 5, 4)}))
    assert [v.shape for v in fixed.module.entry_graph.params] == [(1, 5, 4), (5,)]
    assert not fixed.resized
    for shape in ((1, 13, 4), (1, 2, 4), (1, 5, 5), (1, 5)):
        with pytest.raises(
            UsageError, match=r"contradicts the model, where it is 1,3\.\.12,4"
        ):
            load_model(PROGRAM, overrides=ModelOverrides({"x": shape}))
    with pytest.raises(UsageError, match="contradicts"):
        load_model(PROGRAM, overrides=ModelOverrides({"x": (1, 5, 4), "gates": (6,)}))
    with pytest.raises(UsageError, match="no input 'y'"):
        load_model(PROGRAM, overrides=ModelOverrides({"y": (1,)}))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({'"max_val":12': '"max_val":null'}, "a dynamic size from 3 to any number"),
        ({'"max_val":12': '"max_val":9000'}, "a dynamic size from 3 to 9000"),
    ],
)
def test_a_size_without_close_bounds_is_refused(
    words: Mapping[str, str], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as error:
        declared_overrides(changed(words), "net.pt2")
    assert "--input-shape x=1,size:2..64,4" in str(error.value)


def test_two_sizes_are_refused() -> None:
    text = zipfile.ZipFile(PROGRAM).read("archive/models/model.json").decode()
    place = text.index('"gates":{')
    gates = text[place : text.index("hint", place)]
    words = {gates: gates.replace("s27", "s31")}
    with pytest.raises(UsageError, match="2 dynamic sizes, of which a model can have"):
        declared_overrides(changed(words), "net.pt2")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (S27, 7),
        ("s27", 7),
        (f"Add(Mul(Integer(2), {S27}), Integer(-1))", 13),
        ("2*s27 - 1", 13),
        (f"FloorDiv({S27}, Integer(2))", 3),
        ("s27//2 + s27%4", 6),
        ("Max(1, s27)", 7),
        (f"Pow({S27}, Integer(2))", 49),
    ],
)
def test_a_size_is_an_expression_of_symbols(text: str, value: int) -> None:
    assert size_at(text, {"s27": 7}, "") == value
    assert bool(symbol_of(text, "")) == (text in (S27, "s27"))


@pytest.mark.parametrize(
    "text",
    [
        "s28",
        "open('/etc/passwd')",
        "(" * 500 + "1" + ")" * 500,
        "Pow(Integer(9), Integer(999999999999))",
        "s27 - 8",
        "s27 / 2",
        "Max()",
        "1 if s27 else 2",
        "1 +",
    ],
)
def test_another_size_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="the size"):
        size_at(text, {"s27": 7}, "net.pt2")
