"""The reader of PyTorch archives: damaged, hostile and unsupported files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import FirmwrightError, ModelError, UnsupportedError
from firmwright.flows.model.model_inspection import inspect_model
from firmwright.frontends.pytorch.importer import translators
from firmwright.ir.graph.nodes import Function
from firmwright.pipeline import load_module_bytes
from tests.pytorch.archive_writer import (
    archive,
    node,
    pack,
    quantized_program,
    small_program,
    unpacked,
)

MODEL = "models/model.json"


def load(data: bytes) -> Function:
    entry = load_module_bytes(data, "net.pt2").entry
    assert isinstance(entry, Function)
    return entry


def changed(*path: Any, to: Any) -> bytes:
    """Return the small program with one value of its JSON replaced."""
    files = unpacked(small_program())
    root = json.loads(files[f"net/{MODEL}"])
    place = root
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return pack(files | {f"net/{MODEL}": json.dumps(root).encode()})


GRAPH = ("graph_module", "graph")
HUGE = [{"as_int": 1 << 40}] * 2


def test_a_written_program_is_imported() -> None:
    ops = [call.op for call in load(small_program()).body]
    assert {"conv2d", "relu6", "mean", "fully_connected", "concatenation"} <= set(ops)
    assert [call.op for call in load(quantized_program()).body] == [
        "expression",
        "fully_connected",
        "dequantize",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 but no archive", "not a readable archive"),
        (small_program()[:-30], "not a readable archive"),
        (small_program(**{MODEL: b"{"}), "not a readable archive"),
        (small_program(**{MODEL: b"[" * 100_000}), "not a readable archive"),
        (small_program(**{MODEL: b"[1]"}), "is not an object"),
        (small_program(**{MODEL: b"{}"}), "has version None of PyTorch's format"),
        (small_program(byteorder=b"big"), "big-endian"),
        (pack({"net/data.pkl": b"", "net/version": b"3"}), "weights without a program"),
        (pack({"net/constants.pkl": b""}), "TorchScript"),
        (
            pack({"serialized_exported_program.json": b"{}"}),
            "the format of an old PyTorch",
        ),
        (
            pack({"config.json": b"{}", "model.weights.h5": b""}),
            "a Keras model.*TFLiteConverter",
        ),
        (pack({"net/other": b""}), "it has no program"),
        (pack({"x.npy": b""}), "it contains arrays, not a model"),
        (
            pack({f"net/{MODEL}": b" " * 50_000_000}, zipfile.ZIP_DEFLATED),
            "unpack to more than 64 times",
        ),
        (small_program(**{"data/weights/w": b"\0" * 8}), "shorter than its sizes"),
        (changed(*GRAPH, "tensor_values", "c", "sizes", to=HUGE), "has the shape"),
        (
            changed(*GRAPH, "tensor_values", "z", "sizes", to=[{}]),
            "does not follow its schema",
        ),
        (
            changed(*GRAPH, "nodes", 1, "outputs", to=[{"as_tensor": {"name": "c"}}]),
            "second time",
        ),
        (
            changed(*GRAPH, "nodes", 0, to=node("aten.relu.default", "c", self="y")),
            "before it is",
        ),
        (changed("schema_version", "major", to=99), "version 99"),
    ],
)
def test_a_broken_file_gives_one_message(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(data)


def test_a_path_outside_of_the_archive_is_a_missing_file() -> None:
    files = unpacked(small_program())
    config = json.loads(files["net/data/weights/model_weights_config.json"])
    config["config"]["w"]["path_name"] = "../../../../etc/passwd"
    files["net/data/weights/model_weights_config.json"] = json.dumps(config).encode()
    with pytest.raises(ModelError, match="is missing"):
        load(pack(files))


def test_python_objects_are_not_read() -> None:
    files = unpacked(small_program())
    config = json.loads(files["net/data/weights/model_weights_config.json"])
    config["config"]["w"]["use_pickle"] = True
    files["net/data/weights/model_weights_config.json"] = json.dumps(config).encode()
    with pytest.raises(ModelError, match="Python object, which only torch can read"):
        load(pack(files))


def test_unsupported_operators_are_listed_together(tmp_path: Any) -> None:
    shape = (1, 3)
    nodes = [
        node("aten.nonzero.default", "a", self="x"),
        node("aten.relu.default", "b", self="x"),
        node("mine.special.default", "y", self="b"),
    ]
    data = archive(nodes, {"x": shape}, {}, dict.fromkeys(("a", "b", "y"), shape), "y")
    with pytest.raises(UnsupportedError) as caught:
        load(data)
    assert [item.op for item in caught.value.items] == [
        "aten.nonzero.default",
        "mine.special.default",
    ]
    assert "run_decompositions" in str(caught.value)
    path = tmp_path / "net.pt2"
    path.write_bytes(data)
    assert len(inspect_model(path).unsupported) == 2


@pytest.mark.parametrize("kind", ["as_expr", "as_ints"])
def test_an_open_size_is_named(kind: str) -> None:
    sizes = [{"as_int": 1}, {kind: {"expr_str": "s0"}}, {"as_int": 5}, {"as_int": 5}]
    with pytest.raises(FirmwrightError, match=r"axis 1 \(s0\) of \w+ is open|schema"):
        load(changed(*GRAPH, "tensor_values", "x", "sizes", to=sizes))


def test_a_change_of_a_part_in_place_is_refused() -> None:
    shape = (2, 3)
    nodes = [
        node("aten.select.int", "a", self="x", dim=0, index=0),
        node("aten.relu_.default", "b", self="a"),
        node("aten.neg.default", "y", self="x"),
    ]
    data = archive(nodes, {"x": shape}, {}, {"a": (3,), "b": (3,), "y": shape}, "y")
    with pytest.raises(
        UnsupportedError, match="a change in place of a part of a tensor"
    ):
        load(data)


def test_transposed_weights_are_read_by_their_strides() -> None:
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    nodes = [node("aten.linear.default", "y", input="x", weight="w")]
    data = archive(nodes, {"x": (1, 3)}, {"w": weights}, {"y": (1, 4)}, "y")
    files = unpacked(data)
    name = "net/data/weights/model_weights_config.json"
    config = json.loads(files[name])
    config["config"]["w"]["tensor_meta"] |= {
        "sizes": [{"as_int": 4}, {"as_int": 3}],
        "strides": [{"as_int": 1}, {"as_int": 4}],
    }
    module = load_module_bytes(
        pack(files | {name: json.dumps(config).encode()}), "net.pt2"
    )
    stored = next(
        c for c in module.constants.values() if c.size_bytes == weights.nbytes
    )
    np.testing.assert_array_equal(stored.array(), weights.T)


@pytest.mark.parametrize(
    ("table", "title"), [("TRANSLATORS", ""), ("COMPLEX_TRANSLATORS", ", complex")]
)
def test_the_page_lists_all_operators(table: str, title: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "pytorch.md").read_text(
        encoding="utf-8"
    )
    start = f"<!-- made from frontends/pytorch/operators{title} -->\n```text\n"
    listed = page.partition(start)[2]
    names: list[str] = []
    for name in translators(table):
        if name.startswith("aten."):
            names.append(name.removeprefix("aten."))
    assert listed.partition("```")[0].split() == sorted(names)


def complex_program(target: str, shape: tuple[int, ...], **args: Any) -> bytes:
    """Return the program of an operator with a complex result, and its magnitudes."""
    nodes = [
        node(target, "s", self="x", **args),
        node("aten.abs.default", "y", self="s"),
    ]
    data = archive(nodes, {"x": (1, 64)}, {}, {"s": shape, "y": shape}, "y")
    files = unpacked(data)
    root = json.loads(files[f"net/{MODEL}"])
    root["graph_module"]["graph"]["tensor_values"]["s"]["dtype"] = COMPLEX64
    return pack(files | {f"net/{MODEL}": json.dumps(root).encode()})


COMPLEX64 = 10


@pytest.mark.parametrize(
    ("target", "args", "message"),
    [
        ("aten.fft_rfft.default", {"n": 1 << 40}, "1,099,511,627,776 numbers"),
        ("aten.fft_rfft.default", {"n": -5}, "invalid arguments"),
        ("aten.fft_rfft.default", {"dim": 7}, "axis 7 of 2 dimensions"),
        (
            "aten._fft_r2c.default",
            {"dim": [1], "normalization": 9, "onesided": True},
            "invalid arguments",
        ),
        (
            "aten._fft_r2c.default",
            {"dim": [], "normalization": 0, "onesided": True},
            "a transform of no axes",
        ),
        ("aten.stft.default", {"n_fft": 1 << 40}, "frames of 1099511627776 of 64"),
        ("aten.stft.default", {"n_fft": 64, "hop_length": 0}, "64 numbers by 0"),
        ("aten.stft.default", {"n_fft": 64, "win_length": -3}, "invalid arguments"),
        ("aten.cosh.default", {}, "is not supported"),
    ],
)
def test_transforms_with_wrong_settings_are_refused(
    target: str, args: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        load(complex_program(target, (1, 33), **args))


def test_complex_inputs_and_results_are_refused() -> None:
    files = unpacked(complex_program("aten.fft_rfft.default", (1, 33)))
    root = json.loads(files[f"net/{MODEL}"])
    specs = root["graph_module"]["signature"]["output_specs"]
    specs[0]["user_output"]["arg"]["as_tensor"]["name"] = "s"
    with pytest.raises(UnsupportedError, match=r"s: an input.*torch\.view_as_real"):
        load(pack(files | {f"net/{MODEL}": json.dumps(root).encode()}))
