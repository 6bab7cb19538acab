"""What verbs are made of: the parser, the options they share, and what a verb hands back.

A verb is a module with NAME, HELP, `add_arguments(parser)` and `run(args) -> Outcome`. An `Outcome`
is said twice over: `data` for `--json`, `text` for people. A verb that ends in a failure which is
itself a result (outputs that differ) gives `error` beside its data; any other failure is raised.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, get_args

import numpy as np

from firmwright.artifacts import Compiler
from firmwright.base.errors import FirmwrightError, UsageError
from firmwright.cli.codegen_options import add_codegen_options
from firmwright.cli.multi_device_options import add_multi_device_options
from firmwright.flows.compilation import compile_for
from firmwright.flows.mlperf import with_benchmark_firmware
from firmwright.flows.model import Model, load_model
from firmwright.flows.tuning_log import read_tuning
from firmwright.frontends.onnx import ModelOverrides
from firmwright.ir.core import POOL_SPEEDS, PoolInfo
from firmwright.partitioning.custom_ops import load_custom_ops
from firmwright.pipeline import NUMERICS, OPTIMIZE_GOALS, Compilation, Options
from firmwright.targets.cmsis_nn import PATH_VARIABLE
from firmwright.tune.partition_methods import EAGER, PartitionRequest, partition_model
from firmwright.usmp.planner_registry import DEFAULT_PLANNER as DEFAULT_PLANNER

CONSTANT_SCOPES = {"linked": "global", "external": "external", "port": "port", "async": "async"}
"""What the user calls the ways to constants, and what pools call them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verb's result. `text` ends without a newline; "" prints nothing."""

    data: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    error: FirmwrightError | None = None


class Verb(Protocol):
    """A module of this package that is a verb."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's own options."""

    def run(self, args: argparse.Namespace) -> Outcome:
        """Do it."""


class CliParser(argparse.ArgumentParser):
    """An argument parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}.", where=self.prog, hint=f"{self.prog} --help.")


# ---- options that verbs share ------------------------------------------------------------------


def add_model_options(
    parser: argparse.ArgumentParser, meaning: str = ".tflite, .onnx or .fwir file"
) -> None:
    parser.add_argument("model", metavar="MODEL", help=meaning)
    add_reference_model_options(parser)


def add_reference_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference-model",
        metavar="FILE",
        default="",
        help="the model file that a .fwir was made from, for the reference runtime",
    )
    parser.add_argument(
        "--custom-op",
        metavar="FILE.py",
        action="append",
        default=[],
        help="operators of your own: their C functions, types and meaning in numpy",
    )
    add_onnx_input_options(parser)


def add_onnx_input_options(parser: argparse.ArgumentParser) -> None:
    """What an ONNX model may leave open."""
    parser.add_argument(
        "--input-shape",
        metavar="NAME=1,3,32,32",
        action="append",
        default=[],
        type=_shape,
        help="the shape of an ONNX model's input that leaves sizes open",
    )
    parser.add_argument(
        "--fix-input",
        metavar="NAME=VALUES",
        action="append",
        default=[],
        type=_binding,
        help="an ONNX model's input is this constant: numbers with commas between them, or a .npy",
    )


def add_board_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    parser.add_argument("--board", metavar="B", help="firmwright boards lists them (host)")
    parser.add_argument(
        "--boards-dir",
        metavar="DIR",
        action="append",
        default=[],
        help="more boards, found before the project's own",
    )


def add_firmware_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--firmware",
        choices=("link", "mlperf", "mlperf-energy"),
        default="link",
        help="what the firmware answers: our link, or MLPerf Tiny's device protocol, for "
        "performance or for energy (link)",
    )


def add_toolchain_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--toolchain",
        "--compiler",
        dest="compiler",
        choices=get_args(Compiler),
        default=None,
        help="what compiles the model: gcc, clang (the board's gcc links), or zig, which needs "
        "nothing but its Python package (FIRMWRIGHT_TOOLCHAIN, else gcc)",
    )


def with_firmware(args: argparse.Namespace, compiled: Compilation) -> Compilation:
    """`compiled` with the firmware that was asked for."""
    if args.firmware == "link":
        return compiled
    return with_benchmark_firmware(compiled, energy=args.firmware == "mlperf-energy")


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """The options of a compilation; what is not given stays None, so `Options` has the defaults."""
    add_board_options(parser)
    group = parser.add_argument_group("compilation")
    _add_goals(group)
    _add_memory(group)
    add_codegen_options(group)


def _add_goals(group: argparse._ArgumentGroup) -> None:
    """What code is made for, and what of it matters most."""
    group.add_argument("--target", metavar="T", help="code generator, e.g. 'cortex-m -mcpu=...'")
    add_partition_options(group)
    add_multi_device_options(group)
    group.add_argument("--numerics", choices=NUMERICS, help="whose roundings (litert)")
    group.add_argument("--optimize", choices=OPTIMIZE_GOALS, help="what to favour (balanced)")
    group.add_argument("--planner", metavar="P", help=f"memory planner ({DEFAULT_PLANNER})")
    group.add_argument(
        "--ram",
        dest="ram_bytes",
        metavar="BYTES",
        type=_bytes,
        help="the fastest program whose workspace is at most that large",
    )
    group.add_argument(
        "--flash",
        dest="flash_bytes",
        metavar="BYTES",
        type=_bytes,
        help="the fastest program whose code and constants are at most that large, as predicted",
    )


def add_partition_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Who gets which operators."""
    parser.add_argument(
        "--cmsis-nn",
        metavar="PATH",
        action=_CmsisNnPath,
        help="a copy of CMSIS-NN, for --target 'cmsis-nn, ...' (CMSIS_NN_PATH)",
    )
    parser.add_argument(
        "--partition",
        metavar="HOW",
        default=EAGER,
        help="which operators backends get: eager (each the first that takes it), collage "
        "(where it costs least, measured), none, or a FILE that partition --save-partition wrote (eager)",
    )
    parser.add_argument(
        "--partition-log",
        metavar="LOG",
        default="",
        help="what collage measured: read, and added to",
    )


class _CmsisNnPath(argparse.Action):
    """Kept where the backend looks: how a library is found is no part of a compilation."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        os.environ[PATH_VARIABLE] = str(values)


def _add_memory(group: argparse._ArgumentGroup) -> None:
    """What lies where."""
    group.add_argument(
        "--pool",
        metavar="NAME[=BYTES][,SPEED=N...]",
        action="append",
        type=_pool,
        help="plan into this pool, in the order given, at most BYTES; SPEED is bandwidth (bytes "
        "per cycle) or latency (cycles), also with read_ or write_ before it: where all "
        "bandwidths are known, what is touched most goes to the fastest pool",
    )
    group.add_argument(
        "--assign-pool",
        metavar="TENSOR=POOL",
        action="append",
        type=_pin,
        help="this tensor lies in that pool",
    )
    group.add_argument(
        "--const-pool",
        metavar="NAME[=BYTES][:HOW]",
        action="append",
        type=_const_pool,
        help="put constants into this memory, in the order given, at most BYTES; HOW is linked "
        "(the default), external (addressable, but not in the image), port or async (read through "
        "a function, before or behind the computation)",
    )
    group.add_argument(
        "--io-buffers",
        choices=("arena", "caller"),
        help="where inputs and outputs lie: in the pools, or in the caller's buffers (workspace)",
    )
    group.add_argument(
        "--preserve-input",
        action="store_true",
        default=None,
        help="a run leaves the input as it was",
    )
    group.add_argument(
        "--stream-input-rows",
        action="store_true",
        default=None,
        help="the input comes row by row (NAME_feed_row, NAME_finish) and is nowhere as a whole",
    )
    group.add_argument(
        "--recompute",
        action="store_true",
        default=None,
        help="compute what a squeeze-and-excite block works on twice, row by row, where that keeps "
        "it out of memory (with --optimize ram or --ram)",
    )


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, sizes = text.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
    except ValueError:
        shape = (0,)
    if not equals or not name or any(size < 1 for size in shape):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE,SIZE...")
    return name, shape


def _binding(text: str) -> tuple[str, Any]:
    name, equals, values = text.partition("=")
    try:
        if values.endswith(".npy"):
            return name, np.load(values, allow_pickle=False)
        numbers = tuple(float(value) for value in values.split(",")) if values else ()
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUES")
    return name, numbers


def _pool(text: str) -> PoolInfo:
    head, *words = text.split(",")
    name, equals, size = head.partition("=")
    try:
        limit = int(size, 0) if equals else None
    except ValueError:
        limit = -1
    if not (name.isidentifier() and name.isascii()) or (limit is not None and limit < 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME=BYTES")
    speeds: dict[str, Any] = {}
    for word in words:
        speeds |= _speed(word)
    return replace(PoolInfo(name, limit), **speeds)


def _speed(text: str) -> dict[str, float | int]:
    """`bandwidth=4` or `read_latency=2` as fields of a pool."""
    name, _, number = text.partition("=")
    names = [n for n in POOL_SPEEDS if name in (n, n.partition("_")[2])]
    try:
        value = int(number) if name.endswith("latency") else float(number)
    except ValueError:
        value = -1
    if not names or not 0 <= value < float("inf") or (value == 0 and "bandwidth" in name):
        known = "bandwidth=N or latency=N, with read_ or write_ before it or without"
        raise argparse.ArgumentTypeError(f"{text!r} is not {known}")
    return dict.fromkeys(names, value)


def _pin(text: str) -> tuple[str, str]:
    tensor, _, pool = text.rpartition("=")
    if not tensor or not pool:
        raise argparse.ArgumentTypeError(f"{text!r} is not TENSOR=POOL")
    return tensor, pool


def _const_pool(text: str) -> PoolInfo:
    head, colon, how = text.partition(":")
    if colon and how not in CONSTANT_SCOPES:
        known = ", ".join(CONSTANT_SCOPES)
        raise argparse.ArgumentTypeError(f"{how!r} is no way to constants: one of {known}")
    return replace(_pool(head), access="ro", scope=CONSTANT_SCOPES[how or "linked"])


def add_sample_options(parser: argparse.ArgumentParser, default: int | None) -> None:
    shown = f" ({default})" if default is not None else ""
    parser.add_argument(
        "--samples",
        metavar="N",
        type=positive_int,
        default=default,
        help=f"how many samples{shown}",
    )
    parser.add_argument(
        "--seed", metavar="S", type=non_negative_int, default=0, help="of the samples (0)"
    )


def positive_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def _bytes(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes")
    return value


def positive_int(text: str) -> int:
    return _integer(text, 1)


def non_negative_int(text: str) -> int:
    return _integer(text, 0)


def _integer(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer of at least {least}")
    return value


# ---- from options to values --------------------------------------------------------------------


def load_model_argument(args: argparse.Namespace) -> Model:
    name = getattr(args, "name", None) or ""
    for file in args.custom_op:
        load_custom_ops(Path(file))
    return load_model(
        args.model, name=name, source=args.reference_model, given=model_overrides(args)
    )


def model_overrides(args: argparse.Namespace) -> ModelOverrides:
    """What the user says of an ONNX model."""
    return ModelOverrides(dict(args.input_shape), dict(args.fix_input))


def compile_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of a compilation that the user gave, by the names of `Options`."""
    special = (
        "pools",
        "pool_assignments",
        "device_assignments",
        "const_pools",
        "board_dirs",
        "tuning",
        "sections",
    )
    names = [option.name for option in fields(Options) if option.name not in special]
    given = {n: getattr(args, n) for n in names if getattr(args, n, None) is not None}
    if getattr(args, "pool", None):
        given["pools"] = tuple(args.pool)
    if getattr(args, "assign_device", None):
        given["device_assignments"] = tuple(args.assign_device)
    if getattr(args, "sections", None):
        given["sections"] = tuple(args.sections)
    if getattr(args, "assign_pool", None):
        given["pool_assignments"] = tuple(args.assign_pool)
    if getattr(args, "const_pool", None):
        given["const_pools"] = tuple(args.const_pool)
    if getattr(args, "tuning", None):
        given["tuning"] = read_tuning(args.tuning)
    if args.boards_dir:
        given["board_dirs"] = tuple(Path(directory) for directory in args.boards_dir)
    return given


def prepare_compilation(
    args: argparse.Namespace, model: Model | None = None
) -> tuple[Model, dict[str, Any]]:
    """The model, its operators given to targets where --partition says how, and the options."""
    return partition_model(
        model or load_model_argument(args), compile_options(args), partition_request(args)
    )


def partition_request(args: argparse.Namespace) -> PartitionRequest:
    """How the user wants the operators to be given to targets."""
    port, flash = (getattr(args, name, "") or "" for name in ("port", "flash"))
    return PartitionRequest(
        args.partition, args.partition_log, port, flash, getattr(args, "timeout", None)
    )


def compile_from_args(args: argparse.Namespace, model: Model | None = None) -> Compilation:
    made, given = prepare_compilation(args, model)
    return compile_for(made, **given)
