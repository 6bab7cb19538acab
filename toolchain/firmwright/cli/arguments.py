"""Arguments that several verbs share, and the values built from them.

Options that set a field of `pipeline.Options` are stored under its name, and as None if omitted.
"""

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from firmwright.artifacts import Compiler, Variant
from firmwright.base.errors import UsageError
from firmwright.base.resource_limits import LIMIT_FACTOR_VARIABLE
from firmwright.boards.flash_tools import FLASH_RUNNERS
from firmwright.boards.trust import TRUST_VARIABLE
from firmwright.cli import option_values
from firmwright.cli.verb import REPEATABLE, ParserOrGroup, add_options
from firmwright.codegen.emit_options import C_STANDARDS, DEFAULT_LICENSE
from firmwright.flows.compilation import compile_for
from firmwright.flows.mlperf import with_benchmark_firmware
from firmwright.flows.model import Model, load_model
from firmwright.flows.model_session import ModelSession, open_session
from firmwright.flows.tuning_log import read_tuning
from firmwright.frontends.onnx import ModelOverrides
from firmwright.partitioning.custom_ops import load_custom_ops
from firmwright.pipeline import C_APIS, NUMERICS, OPTIMIZE_GOALS, Compilation, Options
from firmwright.targets.cmsis_nn import PATH_VARIABLE
from firmwright.tune.partition_methods import EAGER, PartitionRequest, partition_model
from firmwright.usmp.planner_registry import DEFAULT_PLANNER

# ---- models ------------------------------------------------------------------------------------


def add_model_options(
    parser: argparse.ArgumentParser, description: str = ".tflite, .onnx, .pt2 or .fwir file"
) -> None:
    parser.add_argument("model", metavar="MODEL", help=description)
    add_reference_model_options(parser)


def add_reference_model_options(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        """
        --reference-model FILE  the model file from which a .fwir was made, for the reference
            runtime
        --custom-op FILE.py  custom operators: their C functions, types and numpy semantics
        """,
        reference_model={"default": ""},
        custom_op=REPEATABLE,
    )
    add_onnx_input_options(parser)


def add_onnx_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that set shapes and values of model inputs, and the limits."""
    add_options(
        parser,
        """
        --input-shape NAME=1,3,32,32  the shape of an input with open dimensions
        --fix-input NAME=VALUES  turn an ONNX input into a constant: comma-separated numbers, or a
            .npy file
        --limit-factor N  multiply the limits on what a model may expand to: computed constants,
            functions, branches and loops (default: FIRMWRIGHT_LIMIT_FACTOR, else 1)
        """,
        input_shape={"type": option_values.input_shape, **REPEATABLE},
        fix_input={"type": option_values.input_values, **REPEATABLE},
        limit_factor={
            "action": _StoreInEnvironment,
            "const": LIMIT_FACTOR_VARIABLE,
            "type": option_values.positive_int,
        },
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


class _StoreInEnvironment(argparse.Action):
    """An action that stores the value in the environment variable `const`, for subprocesses too."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        os.environ[self.const] = self.stored(str(values))

    def stored(self, value: str) -> str:
        return value


class _AppendToEnvironment(_StoreInEnvironment):
    """The same for a variable with several values, separated as in PATH."""

    def stored(self, value: str) -> str:
        return f"{os.environ.get(self.const, '')}{os.pathsep}{value}"


# ---- boards and firmware -----------------------------------------------------------------------


def add_board_options(parser: ParserOrGroup) -> None:
    add_options(parser, "--board B  see firmwright boards (default: host)")
    add_boards_dir_option(parser)


def add_required_board_option(parser: ParserOrGroup) -> None:
    add_options(parser, "--board B  see firmwright boards", board={"required": True})
    add_boards_dir_option(parser)


def add_boards_dir_option(parser: ParserOrGroup) -> None:
    add_options(
        parser,
        """
        --boards-dir DIR  folder of additional boards, which take precedence over built-in ones
        --trust PROGRAM  a program that a board file may start, besides QEMU (repeatable; default:
            FIRMWRIGHT_TRUST)
        """,
        boards_dir={"dest": "board_dirs", "type": Path, **REPEATABLE},
        trust={"action": _AppendToEnvironment, "const": TRUST_VARIABLE},
    )


def add_runner_option(parser: ParserOrGroup, *more: str) -> None:
    add_options(
        parser,
        "--runner  flash tool (default: the first in the board's file)",
        runner={"choices": (*FLASH_RUNNERS, *more), "default": ""},
    )


def add_firmware_option(parser: ParserOrGroup) -> None:
    add_options(
        parser,
        """
        --firmware  protocol of the firmware: Firmwright's serial link, or MLPerf Tiny's performance
            or energy mode (default: serial)
        """,
        firmware={"choices": ("serial", "mlperf", "mlperf-energy"), "default": "serial"},
    )


def apply_firmware_option(args: argparse.Namespace, compiled: Compilation) -> Compilation:
    if args.firmware == "serial":
        return compiled
    return with_benchmark_firmware(compiled, energy=args.firmware == "mlperf-energy")


def add_toolchain_option(parser: ParserOrGroup) -> None:
    add_options(
        parser,
        """
        --toolchain --compiler  C compiler of the model: gcc, clang (linked by the board's gcc), or
            zig, which needs only its Python package (default: FIRMWRIGHT_TOOLCHAIN, else gcc)
        """,
        toolchain={"dest": "compiler", "choices": get_args(Compiler)},
    )


def add_measurement_options(parser: ParserOrGroup) -> None:
    add_options(
        parser,
        """
        --port URL  serial port or pyserial URL of a board to measure on
        --flash-command COMMAND  command that flashes this board; {elf}, {bin} and {hex} are
            replaced by file names
        --timeout S  seconds for one run (default: 300)
        """,
        port={"default": ""},
        flash_command={"default": ""},
        timeout={"type": option_values.positive_seconds},
    )


def add_sample_options(
    parser: argparse.ArgumentParser, default: int | None, shown: str = ""
) -> None:
    add_options(
        parser,
        f"""
        --samples N  number of generated samples (default: {shown or default})
        --seed S  random seed for generated samples (default: 0)
        """,
        samples={"type": option_values.positive_int, "default": default},
        seed={"type": option_values.non_negative_int, "default": 0},
    )


# ---- compilation -------------------------------------------------------------------------------


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    add_board_options(parser)
    group = parser.add_argument_group("compilation")
    add_target_option(group)
    add_partition_options(group)
    _add_device_options(group)
    add_numerics_option(group)
    _add_goal_and_memory_options(group)
    _add_codegen_options(group)


def add_target_option(parser: ParserOrGroup) -> None:
    add_options(
        parser, "--target T  target, e.g. 'cortex-m -mcpu=cortex-m4' (default: the board's)"
    )


def add_numerics_option(parser: ParserOrGroup) -> None:
    add_options(
        parser,
        "--numerics  rounding profile to match bit for bit (default: litert; ONNX models: onnx)",
        numerics={"choices": NUMERICS},
    )


def add_cmsis_nn_option(parser: ParserOrGroup) -> None:
    add_options(
        parser,
        "--cmsis-nn PATH  copy of CMSIS-NN for the target cmsis-nn (default: CMSIS_NN_PATH)",
        cmsis_nn={"action": _StoreInEnvironment, "const": PATH_VARIABLE},
    )


def add_partition_options(parser: ParserOrGroup) -> None:
    add_cmsis_nn_option(parser)
    add_options(
        parser,
        """
        --partition HOW  assignment of operators to backends: eager (the first backend that
            matches), collage (the cheapest, measured), none, or a FILE of partition
            --save-partition (default: eager)
        --partition-log LOG  log of collage measurements, read and appended to
        --offload TENSOR=TARGET  assign the operator that makes TENSOR to this target, or to cpu;
            --partition assigns the others
        """,
        offload={"type": option_values.tensor_target, **REPEATABLE},
        partition={"default": EAGER},
        partition_log={"default": ""},
    )


def _add_device_options(group: argparse._ArgumentGroup) -> None:
    add_options(
        group,
        """
        --devices cpu0,cpu1  cores that share the work, the main core first (default: one core)
        --assign-device TENSOR=DEVICE[:POOL]  compute this tensor on that device; weights are copied
            to POOL once, before the first run
        --fallback  fall back to the main core if a device rejects or aborts a call
        --pipeline-runs  overlap consecutive runs; outputs belong to the inputs of the run before
        """,
        devices={"type": option_values.names},
        assign_device={
            "dest": "device_assignments",
            "type": option_values.device_assignment,
            **REPEATABLE,
        },
        fallback={"default": None},
        pipeline_runs={"default": None},
    )


def _add_goal_and_memory_options(group: argparse._ArgumentGroup) -> None:
    add_options(
        group,
        f"""
        --optimize  optimization goal (default: balanced)
        --planner P  memory planner (default: {DEFAULT_PLANNER})
        --ram BYTES  find the fastest program with a workspace of at most BYTES
        --flash BYTES  find the fastest program with code and constants of at most BYTES, as
            predicted
        --pool NAME[=BYTES][,SPEED=N...]  plan into this pool of at most BYTES (repeatable, in order
            of preference); SPEED is bandwidth (bytes per cycle) or latency (cycles), optionally
            with the prefix read_ or write_: if all bandwidths are known, frequently accessed
            buffers get the fastest pool
        --assign-pool TENSOR=POOL  place this tensor in that pool
        --const-pool NAME[=BYTES][:HOW]  place constants in this memory of at most BYTES
            (repeatable, in order of preference); HOW is linked (default), external (addressable,
            not in the image), port or async (read by a function, before or during the computation)
        --io-buffers  location of inputs and outputs: pools or caller's buffers (default: arena)
        --preserve-input  do not overwrite the input during a run
        --stream-input-rows  feed the input row by row (NAME_feed_row, NAME_finish), without a
            buffer for all of it
        --recompute  rematerialize the input of squeeze-and-excite blocks row by row where that
            saves memory (with --optimize ram or --ram)
        """,
        optimize={"choices": OPTIMIZE_GOALS},
        ram={"dest": "ram_bytes", "type": option_values.byte_count},
        flash={"dest": "flash_bytes", "type": option_values.byte_count},
        pool={"dest": "pools", "type": option_values.pool, **REPEATABLE},
        assign_pool={
            "dest": "pool_assignments",
            "type": option_values.pool_assignment,
            **REPEATABLE,
        },
        const_pool={"dest": "const_pools", "type": option_values.const_pool, **REPEATABLE},
        io_buffers={"choices": ("arena", "caller")},
        preserve_input={"default": None},
        stream_input_rows={"default": None},
        recompute={"default": None},
    )


def _add_codegen_options(group: argparse._ArgumentGroup) -> None:
    add_options(
        group,
        f"""
        --no-link-params  pass the constants to the model's run function instead of linking them
        --no-inline-asm  generate portable C instead of inline assembly
        --c-standard  language of sources and project; with c11 or later, _Static_assert
            checks the plan (default: c99)
        --section KIND=SECTION  linker section of the model's functions (code=SECTION) or constants
            (const=SECTION)
        --header-only-constants  put every constant into NAME_weights.h, including initial states
            and constants that several models could share
        --license SPDX  SPDX license expression in the generated files (default: {DEFAULT_LICENSE})
        --emit-step-api  also generate NAME_step, which executes one operator for each call
        --emit-probe-callback  runs take a callback, called before and after each operator, which
            can cancel them
        --emit-descriptor  also generate NAME_descriptor.c, a constant that describes the model, for
            code that handles many models
        --c-api  tvm: also generate microTVM's tvmgen_NAME.h in the folder tvm (default: own)
        --tuning LOG  select kernels by this log of `tune`
        --pass MODULE:FUNCTION[@PASS]  run a Python function on the module after this pass (default:
            the place that the function states, else import), or the entry point of an installed
            package with this name
        --name --prefix NAME  name of the model and prefix of its C; several models take
            NAME,NAME,... (default: the file's)
        """,
        no_link_params={"dest": "link_params", "action": "store_false", "default": None},
        no_inline_asm={"dest": "inline_asm", "action": "store_false", "default": None},
        c_standard={"choices": C_STANDARDS},
        section={"dest": "sections", "type": option_values.linker_section, **REPEATABLE},
        header_only_constants={"dest": "constants_in_header", "default": None},
        emit_step_api={"default": None},
        emit_probe_callback={"default": None},
        emit_descriptor={"default": None},
        c_api={"choices": C_APIS},
        **{"pass": {"dest": "passes", **REPEATABLE}},
    )


def compile_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the compile options that the user gave, as fields of `Options`."""
    options: dict[str, Any] = {}
    for name in (field.name for field in fields(Options)):
        value = getattr(args, name, None)
        if value not in (None, []):
            options[name] = tuple(value) if isinstance(value, list) else value
    if "tuning" in options:
        options["tuning"] = read_tuning(options["tuning"])
    return options


def given_options(args: argparse.Namespace) -> set[str]:
    """Return the names of the compile options on the command line, without the project file's."""
    return compile_options(args).keys() - getattr(args, "from_project", frozenset())


def prepare_compilation(args: argparse.Namespace) -> tuple[Model, dict[str, Any]]:
    """Return the model, partitioned according to --partition, and the compile options."""
    return partition_model(
        load_model_argument(args), compile_options(args), partition_request(args)
    )


def partition_request(args: argparse.Namespace) -> PartitionRequest:
    port, flash = (getattr(args, name, "") or "" for name in ("port", "flash_command"))
    timeout_s = getattr(args, "timeout", None)
    return PartitionRequest(args.partition, args.partition_log, port, flash, timeout_s)


def compile_from_args(args: argparse.Namespace) -> Compilation:
    model, options = prepare_compilation(args)
    return compile_for(model, **options)


# ---- sessions ----------------------------------------------------------------------------------


def add_session_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("device")
    add_options(
        group,
        """
        --port URL  serial port or pyserial URL of a flashed board
        --baud RATE  raise the serial line to this rate after connecting (default: unchanged)
        --in-process  on the host: load the model as a library instead of starting a process
        --timeout S  seconds for one run (default: 300)
        """,
        port={"default": ""},
        baud={"type": option_values.positive_int, "default": 0},
        timeout={"type": option_values.positive_seconds},
    )
    add_toolchain_option(group)


def add_variant_option(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        """
        --variant  profile adds a probe around every operator, debug also guard bytes around the
            pools (default: release)
        """,
        variant={"choices": get_args(Variant), "default": "release"},
    )


def add_count_instructions_option(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        "--count-instructions  count every instruction (QEMU only) and report modeled cycles",
    )


def make_session_opener(args: argparse.Namespace) -> Any:
    variant = getattr(args, "variant", "release")
    if args.in_process and variant != "release":
        raise UsageError(
            f"a library in this process has no {variant} image.", hint="no --in-process."
        )

    def open_it(compiled: Compilation, **more: Any) -> ModelSession:
        in_process = args.in_process and more.get("variant", "release") == "release"
        settings = {
            "port": args.port,
            "timeout_s": args.timeout,
            "compiler": args.compiler,
            "variant": variant,
            "baud": args.baud,
        }
        return open_session(compiled, in_process=in_process, **{**settings, **more})

    return open_it
