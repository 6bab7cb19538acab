"""Readers of external files, with their seed files and mutators.

A reader takes bytes and returns, or raises one of our errors other than InternalError.
Accepted modules also go through the verifier.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np

from firmwright.base.array_files import read_npz
from firmwright.base.dtypes import INT8
from firmwright.base.errors import FirmwrightError, InternalError, ModelError
from firmwright.base.quant import Quantization
from firmwright.base.resources import boards_dir
from firmwright.boards.load import _read_board_file as read_board_file
from firmwright.cli import reproduce
from firmwright.cli.profile import read_profile
from firmwright.conformance.case_tables import conformance_cases
from firmwright.extensions.tune.log_writer import RegionCostLog
from firmwright.flows.evidence.record import read_evidence, to_array
from firmwright.flows.measure.build_report import read_report
from firmwright.flows.model.tuning_log import read_tuning
from firmwright.flows.samples.labeled_data import read_dataset
from firmwright.flows.samples.metrics import make_task
from firmwright.flows.samples.sample_batches import npz_bytes
from firmwright.frontends.onnx.preprocess import ModelOverrides, preprocess_model
from firmwright.frontends.tflite import preprocess_tflite, read_c_array
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import op_table
from firmwright.package.option_serialization import deserialize_options
from firmwright.package.project_writer import _check as owned_paths
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.partitioning.partition_result import PARTITION_SCHEMA, read_partition
from firmwright.pipeline import Options, compile_model, load_module_bytes
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets import backend_registry
from firmwright.targets.registry import parse_target
from tests.fuzz.random_networks import random_network
from tests.fuzz.replayed import answers_of_a_session, replay
from tests.fuzz.structured_mutator import (
    Bend,
    by_archive,
    by_bytes,
    by_flatbuffer,
    by_protobuf,
    by_tokens,
    by_values,
    few,
)
from tests.fuzz.tuning_lines import MEASUREMENT
from tests.onnx.onnx_models import Net
from tests.ops.tflite_writer import write_cases
from tests.pytorch.archive_writer import quantized_program, small_program

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = (
    "conv2d",
    "depthwise_conv2d",
    "fully_connected",
    "add",
    "softmax",
    "concatenation",
    "pad",
    "strided_slice",
    "reshape",
    "mean",
    "transpose",
    "resize_bilinear",
    "gather",
    "lstm",
)
LARGEST_CASE_BYTES = 4000
SMALL_NETWORKS = (8, 29)
MEMORY_DISK = Path("/dev/shm")
_SOC = b"\n#### soc\n"


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader under test; `share` weighs its cases, at least LEAST_CASES a million."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    bend: Bend
    read: Callable[[bytes], object]
    share: int


# ---- models --------------------------------------------------------------------------


def _verified(module: IRModule) -> IRModule:
    verify_module(module, op_table(), collect_intrinsics(module, INTRINSICS))
    return module


def _read_tflite(data: bytes) -> object:
    data = preprocess_tflite(data, "hostile.tflite", {})
    return _verified(load_module_bytes(data, "hostile.tflite"))


def _read_onnx(data: bytes) -> object:
    whole = preprocess_model(data, "hostile.onnx", ModelOverrides(), _folder())
    return _verified(load_module_bytes(whole, "hostile.onnx"))


def _read_pytorch(data: bytes) -> object:
    return _verified(load_module_bytes(data, "hostile.pt2"))


def _pytorch_seeds() -> tuple[bytes, ...]:
    return small_program(), quantized_program()


def _read_text(data: bytes) -> object:
    return load_module_bytes(
        b"firmwright" + data.removeprefix(b"firmwright"), "hostile.fwir"
    )


def _read_fragment(data: bytes) -> object:
    """Parse module text without its first line, as written by hand."""
    text = "firmwright ir 2\nmodule @hostile\n" + data.decode("utf-8", "replace")
    return _verified(parse_module(text, "hostile.fwir"))


@cache
def _tflite_seeds() -> tuple[bytes, ...]:
    found = []
    for name in OPERATORS:
        cases = [case for case in conformance_cases(name) if case.builtin]
        files = sorted((write_cases([case]) for case in cases[:12]), key=len)
        found += [file for file in files if len(file) <= LARGEST_CASE_BYTES][:2]
    return tuple(found)


def _read_c_source(data: bytes) -> object:
    return _verified(load_module_bytes(read_c_array(data, "hostile.cc"), "hostile.cc"))


@cache
def _c_source_seeds() -> tuple[bytes, ...]:
    files = sorted(_tflite_seeds(), key=len)[:2]
    hexadecimal = ", ".join(f"0x{byte:02x}" for byte in files[0])
    octal = "".join(f"\\{byte:03o}" for byte in files[1])
    return (
        f"int m[] = {{{hexadecimal}}}; // m".encode(),
        f'char m[] = "{octal}";'.encode(),
    )


@cache
def _onnx_seeds() -> tuple[bytes, ...]:
    small = []
    for seed in range(4):
        net = Net(seed)
        x = net.input("x", (1, 2, 6, 6))
        y = net.node("Relu", net.conv(x, 2, 3, (3, 3), pads=[1, 1, 1, 1]))
        match seed:
            case 0:
                y = net.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
            case 1:
                y = net.node("Softmax", net.node("Flatten", y), axis=1)
            case 2:
                y = net.node(
                    "Concat", y, net.node("Transpose", y, perm=[0, 1, 3, 2]), axis=1
                )
            case _:
                y = net.node(
                    "ReduceMean", net.node("Add", y, y), axes=[2, 3], keepdims=0
                )
        small.append(net.model(y))
    return tuple(small)


@cache
def _graph_seeds() -> tuple[bytes, ...]:
    return tuple(print_module(random_network(seed)).encode() for seed in (1, 5, 9))


@cache
def _lowered_seeds() -> tuple[bytes, ...]:
    """Return small modules after selection and after planning."""
    seen: list[bytes] = []

    def watch(step: str, module: IRModule) -> None:
        if step in ("lower-select", "usmp"):
            seen.append(print_module(module).encode())

    for seed in SMALL_NETWORKS:
        compile_model(random_network(seed), Options(target="c"), watch=watch)
    return tuple(seen)


@cache
def _filetest_seeds() -> tuple[bytes, ...]:
    files = sorted((ROOT / "tests" / "filetests").rglob("*.fwir"))
    return tuple(file.read_bytes() for file in files)


# ---- boards, logs, facts -------------------------------------------------------------


@cache
def _folder() -> Path:
    """Return a folder private to this process."""
    base = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    return Path(tempfile.mkdtemp(prefix="firmwright-hostile-", dir=base))


def _file(data: bytes, name: str) -> Path:
    path = _folder() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def _read_board(data: bytes) -> object:
    """Read a board file; after a marker follows the file of its chip."""
    board, _, soc = data.partition(_SOC)
    _file(soc, "soc/hostile.toml")
    return read_board_file(_file(board, "hostile/board.toml"), (_folder(),))


@cache
def _board_seeds() -> tuple[bytes, ...]:
    found = []
    for file in sorted(boards_dir().glob("*/board.toml")):
        text = re.sub('^name = ".*"', 'name = "hostile"', file.read_text(), count=1)
        named = re.search('^soc = "(.*)"', text, flags=re.MULTILINE)
        soc = (boards_dir() / "soc" / f"{named[1]}.toml").read_text() if named else ""
        text = re.sub('^soc = ".*"', 'soc = "hostile"', text, flags=re.MULTILINE)
        found.append(text.encode() + _SOC + soc.encode())
    return tuple(found)


@cache
def _tuning_seeds() -> tuple[bytes, ...]:
    return (
        b"\n".join(json.dumps({**MEASUREMENT, "count": n}).encode() for n in range(3)),
    )


@cache
def _part_seeds() -> tuple[bytes, ...]:
    line = {
        "schema": "part-1",
        "part": "p",
        "target": "npu",
        "goal": "speed",
        "what": "conv2d",
        "status": "ok",
        "count": 12,
        "how": "measured",
        "scratch": {"sram": 4},
        "constants_bytes": 100,
        "reason": "",
        "board": "b",
        "method": "exact",
        "compiler": "gcc",
        "flags": "",
        "version": "0.1.0",
    }
    return (b"\n".join(json.dumps({**line, "count": n}).encode() for n in range(2)),)


def _read_tuning_log(data: bytes) -> object:
    tuning = read_tuning(_file(data, "tuning.log"))
    if not tuning.layers:
        raise ModelError("no line of it is a measurement.")
    return tuning, [
        tuning.measurements_for_layer(layer, "b") for layer in tuning.layers
    ]


def _read_part_log(data: bytes) -> object:
    with RegionCostLog(_file(data, "parts.log")) as log:
        if not log._costs:
            raise ModelError("no line of it says what a part costs.")
        return log


def _read_facts(data: bytes) -> object:
    """Read a project's metadata.json by all of its readers."""
    place = _file(data, "project/metadata.json").parent
    _tried(lambda: owned_paths(place))
    facts = reproduce.read_project(place)
    return Options(**deserialize_options(facts["options"], Options, place))


def _tried(read: Callable[[], object]) -> None:
    try:
        read()
    except InternalError:
        raise
    except FirmwrightError:
        return


@cache
def _facts_seeds() -> tuple[bytes, ...]:
    options = Options(
        target="cortex-m -mcpu=cortex-m4", preserve_input=True, ram_bytes=50_000
    )
    done = compile_model(random_network(3), options)
    return (str(done.tree.files["metadata.json"]).encode(),)


def _read_earlier(data: bytes) -> object:
    """Read reports and profiles that serve as baselines."""
    path = _file(data, "earlier.json")
    _tried(lambda: read_profile(str(path)))
    return read_report(path)


@cache
def _earlier_seeds() -> tuple[bytes, ...]:
    row = {"name": "conv", "kind": "conv2d", "instructions": 12, "macs": 3}
    facts = {
        "operators": [row, row],
        "total": 24,
        "workspace_bytes": 10,
        "unit": "instructions",
    }
    return (json.dumps(facts).encode(),)


@cache
def _result_seeds() -> tuple[bytes, ...]:
    part = {"target": "npu", "makes": ["a", "b"], "ops": ["conv2d"], "entries": ["x"]}
    return (json.dumps({"schema": PARTITION_SCHEMA, "parts": [part, part]}).encode(),)


@cache
def _target_seeds() -> tuple[bytes, ...]:
    attrs = {"mcpu": "cortex-m4"}
    return (
        b"cortex-m -mcpu=cortex-m55",
        b"riscv32 -march=rv32imac",
        json.dumps({"kind": "cortex-m", "attrs": attrs}).encode(),
    )


def _read_target(data: bytes) -> object:
    # What is installed does not change meanwhile, and takes long to list.
    with patch.object(backend_registry, "entry_points", return_value=[]):
        return parse_target(data.decode("utf-8", "replace"))


@cache
def _array_seeds() -> tuple[bytes, ...]:
    return (
        npz_bytes(
            {"x": np.arange(12, dtype=np.int8), "y": np.zeros((2, 2), np.float32)}
        ),
    )


@cache
def _data_set_seeds() -> tuple[bytes, ...]:
    images, classes = np.zeros((3, 1, 2, 2), np.int8), np.array(["a", "b", "c"])
    arrays = ({"x": images, "y": classes}, {"x": images[:, 0], "labels": np.eye(3)})
    return (*map(npz_bytes, arrays), b"yes\nno\nmaybe\n", b"0.5,1,7\n0,2,7\n-1,3,7\n")


def _read_data_set(data: bytes) -> object:
    """Read a data set, or labels for one, and choose the metric."""
    shape = (1, 2, 2)
    image = IoTensor(
        "image", "image", TensorType(shape, INT8, Quantization((0.5,), (-128,)))
    )
    if data.startswith(b"PK"):
        found = read_dataset(_file(data, "x.npz"), [image])
    else:
        found = read_dataset(
            {"x": np.zeros((3, *shape))}, [image], _file(data, "labels.csv")
        )
    return make_task(found, shape, (1, 3))


def _read_evidence(data: bytes) -> object:
    found = read_evidence(_file(data, "evidence.json"))
    try:
        arrays = [to_array(output) for output in found.outputs]
    except ValueError as error:
        raise ModelError(str(error)) from error
    return arrays, deserialize_options(found.options, Options, Path("evidence.json"))


@cache
def _evidence_seeds() -> tuple[bytes, ...]:
    return tuple(
        file.read_bytes() for file in sorted((ROOT / "docs/evidence").glob("*.json"))
    )


READERS: tuple[Reader, ...] = (
    Reader("tflite", _tflite_seeds, few(by_flatbuffer), _read_tflite, 30),
    Reader("c source", _c_source_seeds, few(by_tokens), _read_c_source, 2),
    Reader("onnx", _onnx_seeds, few(by_protobuf), _read_onnx, 2),
    Reader("pytorch", _pytorch_seeds, few(by_archive), _read_pytorch, 2),
    Reader("text of graphs", _graph_seeds, few(by_tokens), _read_text, 2),
    Reader("text of kernels", _lowered_seeds, few(by_tokens), _read_text, 2),
    Reader("texts by hand", _filetest_seeds, few(by_tokens), _read_fragment, 2),
    Reader("boards", _board_seeds, few(by_tokens), _read_board, 3),
    Reader("tuning log", _tuning_seeds, few(by_values), _read_tuning_log, 9),
    Reader("log of parts", _part_seeds, few(by_values), _read_part_log, 9),
    Reader(
        "partition",
        _result_seeds,
        few(by_values),
        lambda data: read_partition(data.decode("utf-8", "replace"), "hostile.json"),
        12,
    ),
    Reader("metadata and recipe", _facts_seeds, few(by_values), _read_facts, 2),
    Reader("earlier results", _earlier_seeds, few(by_values), _read_earlier, 7),
    Reader("evidence", _evidence_seeds, few(by_values), _read_evidence, 2),
    Reader("targets", _target_seeds, few(by_tokens), _read_target, 9),
    Reader(
        "arrays",
        _array_seeds,
        few(by_bytes),
        lambda data: read_npz(_file(data, "x.npz")),
        5,
    ),
    Reader("data sets", _data_set_seeds, few(by_bytes), _read_data_set, 2),
    Reader("answers of a device", answers_of_a_session, few(by_bytes), replay, 2),
)
"""`share` is in percent of all cases."""
