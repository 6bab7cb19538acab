"""Options that several verbs share, and the values built from them.

An option that sets a field of `pipeline.Options` is stored under the field's name. Options that the
user omits are stored as None, so that `Options` alone defines the defaults.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from firmwright.artifacts import Compiler
from firmwright.boards.flash_tools import FLASH_RUNNERS
from firmwright.cli.codegen_options import add_codegen_options
from firmwright.cli.option_values import (
    byte_count,
    const_pool,
    device_assignment,
    device_names,
    input_shape,
    input_values,
    non_negative_int,
    pool,
    pool_assignment,
    positive_int,
    positive_seconds,
)
from firmwright.flows.compilation import compile_for
from firmwright.flows.mlperf import with_benchmark_firmware
from firmwright.flows.model import Model, load_model
from firmwright.flows.tuning_log import read_tuning
from firmwright.frontends.onnx import ModelOverrides
from firmwright.partitioning.custom_ops import load_custom_ops
from firmwright.pipeline import NUMERICS, OPTIMIZE_GOALS, Compilation, Options
from firmwright.targets.cmsis_nn import PATH_VARIABLE
from firmwright.tune.partition_methods import EAGER, PartitionRequest, partition_model
from firmwright.usmp.planner_registry import DEFAULT_PLANNER

ParserOrGroup = argparse.ArgumentParser | argparse._ArgumentGroup


# ---- models ------------------------------------------------------------------------------------


def add_model_options(
    parser: argparse.ArgumentParser, description: str = ".tflite, .onnx or .fwir file"
) -> None:
    parser.add_argument("model", metavar="MODEL", help=description)
    add_reference_model_options(parser)


def add_reference_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference-model",
        metavar="FILE",
        default="",
        help="the model file from which a .fwir was made, for the reference runtime",
    )
    parser.add_argument(
        "--custom-op",
        metavar="FILE.py",
        action="append",
        default=[],
        help="custom operators: their C functions, types and numpy semantics",
    )
    add_onnx_input_options(parser)


def add_onnx_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for inputs whose shapes or values an ONNX model leaves open."""
    parser.add_argument(
        "--input-shape",
        metavar="NAME=1,3,32,32",
        action="append",
        default=[],
        type=input_shape,
        help="the shape of an ONNX input with open dimensions",
    )
    parser.add_argument(
        "--fix-input",
        metavar="NAME=VALUES",
        action="append",
        default=[],
        type=input_values,
        help="turn an ONNX input into a constant: comma-separated numbers, or a .npy file",
    )


def load_model_argument(args: argparse.Namespace) -> Model:
    name = getattr(args, "name", None) or ""
    for file in args.custom_op:
        load_custom_ops(Path(file))
    return load_model(
        args.model, name=name, reference_model=args.reference_model, overrides=model_overrides(args)
    )


def model_overrides(args: argparse.Namespace) -> ModelOverrides:
    return ModelOverrides(dict(args.input_shape), dict(args.fix_input))


# ---- boards and firmware -----------------------------------------------------------------------


def add_board_options(parser: ParserOrGroup) -> None:
    parser.add_argument("--board", metavar="B", help="see firmwright boards (default: host)")
    add_boards_dir_option(parser)


def add_required_board_option(parser: ParserOrGroup) -> None:
    parser.add_argument("--board", metavar="B", required=True, help="see firmwright boards")
    add_boards_dir_option(parser)


def add_boards_dir_option(parser: ParserOrGroup) -> None:
    parser.add_argument(
        "--boards-dir",
        dest="board_dirs",
        metavar="DIR",
        action="append",
        default=[],
        type=Path,
        help="folder of additional boards, which take precedence over built-in ones",
    )


def add_runner_option(parser: ParserOrGroup) -> None:
    parser.add_argument(
        "--runner",
        choices=tuple(FLASH_RUNNERS),
        default="",
        help="flash tool (default: the first in the board's file)",
    )


def add_firmware_option(parser: ParserOrGroup) -> None:
    parser.add_argument(
        "--firmware",
        choices=("serial", "mlperf", "mlperf-energy"),
        default="serial",
        help="protocol of the firmware: Firmwright's serial link, or MLPerf Tiny's performance or "
        "energy mode (default: serial)",
    )


def with_firmware(args: argparse.Namespace, compiled: Compilation) -> Compilation:
    if args.firmware == "serial":
        return compiled
    return with_benchmark_firmware(compiled, energy=args.firmware == "mlperf-energy")


def add_toolchain_option(parser: ParserOrGroup) -> None:
    parser.add_argument(
        "--toolchain",
        "--compiler",
        dest="compiler",
        choices=get_args(Compiler),
        default=None,
        help="C compiler of the model: gcc, clang (linked by the board's gcc), or zig, which needs "
        "only its Python package (default: FIRMWRIGHT_TOOLCHAIN, else gcc)",
    )


def add_measurement_options(parser: ParserOrGroup) -> None:
    parser.add_argument(
        "--port",
        metavar="URL",
        default="",
        help="serial port or pyserial URL of a board to measure on",
    )
    parser.add_argument(
        "--flash",
        metavar="COMMAND",
        default="",
        help="command that flashes this board; {elf}, {bin} and {hex} are replaced by file names",
    )
    parser.add_argument(
        "--timeout", metavar="S", type=positive_seconds, help="seconds for one run (default: 300)"
    )


def add_sample_options(parser: argparse.ArgumentParser, default: int | None) -> None:
    shown = f" (default: {default})" if default is not None else ""
    parser.add_argument(
        "--samples",
        metavar="N",
        type=positive_int,
        default=default,
        help=f"number of generated samples{shown}",
    )
    parser.add_argument(
        "--seed",
        metavar="S",
        type=non_negative_int,
        default=0,
        help="random seed for generated samples (default: 0)",
    )


# ---- compilation -------------------------------------------------------------------------------


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    add_board_options(parser)
    group = parser.add_argument_group("compilation")
    add_target_option(group)
    add_partition_options(group)
    _add_device_options(group)
    add_numerics_option(group)
    _add_goal_options(group)
    _add_memory_options(group)
    add_codegen_options(group)


def add_target_option(parser: ParserOrGroup) -> None:
    parser.add_argument("--target", metavar="T", help="target, e.g. 'cortex-m -mcpu=cortex-m4'")


def add_numerics_option(parser: ParserOrGroup) -> None:
    parser.add_argument(
        "--numerics",
        choices=NUMERICS,
        help="rounding profile to match bit for bit (default: litert)",
    )


def add_partition_options(parser: ParserOrGroup) -> None:
    parser.add_argument(
        "--cmsis-nn",
        metavar="PATH",
        action=_CmsisNnPath,
        help="copy of CMSIS-NN for --target 'cmsis-nn, ...' (default: CMSIS_NN_PATH)",
    )
    parser.add_argument(
        "--partition",
        metavar="HOW",
        default=EAGER,
        help="assignment of operators to backends: eager (the first backend that matches), "
        "collage (the cheapest, measured), none, or a FILE of partition --save-partition "
        "(default: eager)",
    )
    parser.add_argument(
        "--partition-log",
        metavar="LOG",
        default="",
        help="log of collage measurements, read and appended to",
    )


class _CmsisNnPath(argparse.Action):
    """An action that stores a path in the environment, since it is not a compile option."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        os.environ[PATH_VARIABLE] = str(values)


def _add_device_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--devices",
        metavar="cpu0,cpu1",
        type=device_names,
        help="cores that share the work; the first one runs the model",
    )
    group.add_argument(
        "--assign-device",
        dest="device_assignments",
        metavar="TENSOR=DEVICE[:POOL]",
        action="append",
        type=device_assignment,
        help="compute this tensor on that device; weights are copied to POOL once, before the "
        "first run",
    )
    group.add_argument(
        "--fallback",
        action="store_true",
        default=None,
        help="fall back to the main core if a device rejects or aborts a call",
    )


def _add_goal_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--optimize", choices=OPTIMIZE_GOALS, help="optimization goal (default: balanced)"
    )
    group.add_argument(
        "--planner", metavar="P", help=f"memory planner (default: {DEFAULT_PLANNER})"
    )
    group.add_argument(
        "--ram",
        dest="ram_bytes",
        metavar="BYTES",
        type=byte_count,
        help="find the fastest program with a workspace of at most BYTES",
    )
    group.add_argument(
        "--flash",
        dest="flash_bytes",
        metavar="BYTES",
        type=byte_count,
        help="find the fastest program with code and constants of at most BYTES, as predicted",
    )


def _add_memory_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--pool",
        dest="pools",
        metavar="NAME[=BYTES][,SPEED=N...]",
        action="append",
        type=pool,
        help="plan into this pool of at most BYTES (repeatable, in order of preference); SPEED is "
        "bandwidth (bytes per cycle) or latency (cycles), optionally with the prefix read_ or "
        "write_: if all bandwidths are known, frequently accessed buffers get the fastest pool",
    )
    group.add_argument(
        "--assign-pool",
        dest="pool_assignments",
        metavar="TENSOR=POOL",
        action="append",
        type=pool_assignment,
        help="place this tensor in that pool",
    )
    group.add_argument(
        "--const-pool",
        dest="const_pools",
        metavar="NAME[=BYTES][:HOW]",
        action="append",
        type=const_pool,
        help="place constants in this memory of at most BYTES (repeatable, in order of "
        "preference); HOW is linked (default), external (addressable, not in the image), port or "
        "async (read by a function, before or during the computation)",
    )
    group.add_argument(
        "--io-buffers",
        choices=("arena", "caller"),
        help="location of inputs and outputs: in the planned pools, or in buffers of the caller "
        "(default: arena)",
    )
    group.add_argument(
        "--preserve-input",
        action="store_true",
        default=None,
        help="do not overwrite the input during a run",
    )
    group.add_argument(
        "--stream-input-rows",
        action="store_true",
        default=None,
        help="feed the input row by row (NAME_feed_row, NAME_finish), without a buffer for all of "
        "it",
    )
    group.add_argument(
        "--recompute",
        action="store_true",
        default=None,
        help="rematerialize the input of squeeze-and-excite blocks row by row where that saves "
        "memory (with --optimize ram or --ram)",
    )


def compile_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the compile options that the user gave, as fields of `Options`."""
    values: dict[str, Any] = {
        field.name: getattr(args, field.name, None) for field in fields(Options)
    }
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value not in (None, [])
    }
    if "tuning" in options:
        options["tuning"] = read_tuning(options["tuning"])
    return options


def prepare_compilation(
    args: argparse.Namespace, model: Model | None = None
) -> tuple[Model, dict[str, Any]]:
    """Return the model, partitioned according to --partition, and the compile options."""
    return partition_model(
        model or load_model_argument(args), compile_options(args), partition_request(args)
    )


def partition_request(args: argparse.Namespace) -> PartitionRequest:
    port, flash = (getattr(args, name, "") or "" for name in ("port", "flash"))
    return PartitionRequest(
        args.partition, args.partition_log, port, flash, getattr(args, "timeout", None)
    )


def compile_from_args(args: argparse.Namespace) -> Compilation:
    model, options = prepare_compilation(args)
    return compile_for(model, **options)
