"""Writes small archives of torch.export without torch."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODES = {"uint8": 1, "int8": 2, "int32": 4, "int64": 5, "float32": 7, "bool": 12}


def tensor_meta(shape: Sequence[int], dtype: str) -> dict[str, Any]:
    strides = np.cumprod([1, *reversed(shape[1:])])[::-1] if shape else []
    return {
        "dtype": CODES[dtype],
        "sizes": [{"as_int": int(n)} for n in shape],
        "strides": [{"as_int": int(n)} for n in strides],
        "storage_offset": {"as_int": 0},
    }


def argument(value: Any) -> dict[str, Any]:
    """Return an argument as JSON; texts are names of tensors."""
    match value:
        case None:
            return {"as_none": True}
        case bool():
            return {"as_bool": value}
        case int():
            return {"as_int": value}
        case float():
            return {"as_float": value}
        case str():
            return {"as_tensor": {"name": value}}
        case [str(), *_]:
            return {"as_tensors": [{"name": name} for name in value]}
        case _:
            return {"as_ints": list(value)}


def node(target: str, output: str, **args: Any) -> dict[str, Any]:
    inputs = [{"name": name, "arg": argument(value)} for name, value in args.items()]
    return {
        "target": f"torch.ops.{target}",
        "inputs": inputs,
        "outputs": [argument(output)],
    }


def archive(
    nodes: Sequence[Mapping[str, Any]],
    inputs: Mapping[str, Sequence[int]],
    constants: Mapping[str, NDArray[np.generic]],
    types: Mapping[str, Sequence[int]],
    result: str,
    **changes: bytes,
) -> bytes:
    """Return a program with float values; `changes` replace files of the archive."""
    values = {
        name: tensor_meta(shape, "float32") for name, shape in (inputs | types).items()
    }
    values |= {
        name: tensor_meta(a.shape, a.dtype.name) for name, a in constants.items()
    }
    specs = [
        {"buffer": {"arg": {"name": name}, "buffer_name": name, "persistent": True}}
        for name in constants
    ]
    users = [{"user_input": {"arg": argument(name)}} for name in inputs]
    signature = {
        "input_specs": [*specs, *users],
        "output_specs": [{"user_output": {"arg": argument(result)}}],
    }
    graph = {"nodes": list(nodes), "tensor_values": values}
    root = {
        "graph_module": {"graph": graph, "signature": signature},
        "schema_version": {"major": 8, "minor": 1},
    }
    config = {
        name: {"path_name": name, "use_pickle": False, "tensor_meta": values[name]}
        for name in constants
    }
    files = {
        "models/model.json": json.dumps(root).encode(),
        "data/weights/model_weights_config.json": json.dumps(
            {"config": config}
        ).encode(),
        "byteorder": b"little",
        **{
            f"data/weights/{name}": array.tobytes() for name, array in constants.items()
        },
    } | changes
    return pack({f"net/{name}": content for name, content in files.items()})


def pack(files: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as target:
        for name, content in files.items():
            target.writestr(zipfile.ZipInfo(name), content, method)
    return stream.getvalue()


def small_program(**changes: bytes) -> bytes:
    """Return a convolution, an activation, a pool and a linear layer."""
    rng = np.random.Generator(np.random.PCG64(0))
    constants = {
        "w": rng.standard_normal((4, 2, 3, 3)).astype(np.float32),
        "m": rng.standard_normal((3, 4)).astype(np.float32),
        "b": rng.standard_normal(3).astype(np.float32),
    }
    nodes = [
        node(
            "aten.conv2d.default", "c", input="x", weight="w", bias=None, padding=[1, 1]
        ),
        node("aten.hardtanh_.default", "h", self="c", min_val=0.0, max_val=6.0),
        node("aten.mean.dim", "p", self="h", dim=[2, 3], keepdim=True),
        node("aten.flatten.using_ints", "f", self="p", start_dim=1),
        node("aten.linear.default", "y", input="f", weight="m", bias="b"),
        node("aten.cat.default", "z", tensors=["y", "y"], dim=-1),
    ]
    image = (1, 4, 5, 5)
    types = {
        "c": image,
        "h": image,
        "p": (1, 4, 1, 1),
        "f": (1, 4),
        "y": (1, 3),
        "z": (1, 6),
    }
    return archive(nodes, {"x": (1, 2, 5, 5)}, constants, types, "z", **changes)


def quantized_program() -> bytes:
    """Return a linear layer of int8 weights between quantize and dequantize."""
    weights = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    constants = {
        "w": weights,
        "s": np.full(3, 0.02, np.float32),
        "o": np.zeros(3, np.int64),
    }
    scale = {"scale": 0.05, "zero_point": -3, "quant_min": -128, "quant_max": 127}
    nodes = [
        node(
            "quantized_decomposed.quantize_per_tensor.default", "q", input="x", **scale
        ),
        node(
            "quantized_decomposed.dequantize_per_tensor.default",
            "d",
            input="q",
            **scale,
        ),
        node(
            "quantized_decomposed.dequantize_per_channel.default",
            "v",
            input="w",
            scales="s",
            zero_points="o",
            axis=0,
        ),
        node("aten.linear.default", "y", input="d", weight="v"),
        node(
            "quantized_decomposed.quantize_per_tensor.default", "r", input="y", **scale
        ),
        node(
            "quantized_decomposed.dequantize_per_tensor.default",
            "z",
            input="r",
            **scale,
        ),
    ]
    row = (2, 3)
    types = {"q": (2, 4), "d": (2, 4), "v": (3, 4), "y": row, "r": row, "z": row}
    data = archive(nodes, {"x": (2, 4)}, constants, types, "z")
    root = unpacked(data)
    program = json.loads(root["net/models/model.json"])
    for name in ("q", "r"):
        program["graph_module"]["graph"]["tensor_values"][name]["dtype"] = CODES["int8"]
    root["net/models/model.json"] = json.dumps(program).encode()
    return pack(root)


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        return {name: source.read(name) for name in source.namelist()}
