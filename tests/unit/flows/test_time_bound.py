"""Bounds are never below counts, in total or per instruction, and close to them."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import DoesNotFitError, ToolMissingError, UsageError
from firmwright.boards import load_board
from firmwright.build import build_project
from firmwright.device import instruction_counter
from firmwright.device.emulator_plugins import check_plugin_support
from firmwright.flows.board.emulated_board import emulate
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.measure.time_bound import TimeBound, bound_time
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.samples.sample_batches import Tensors, generate_samples
from firmwright.graph_builder import GraphBuilder
from firmwright.pipeline import Compilation
from tests import mlperf_tiny

PLUGIN = Path(__file__).with_name("largest_counts.c")
INTERFACE = Path(instruction_counter.__file__).with_name("plugin")
BOARDS = {
    "microbit": "arm",
    "mps2-an386": "arm",
    "mps2-an505": "arm",
    "qemu-riscv32-virt": "riscv32",
}
LARGER = {"microbit": "rpi-pico"}
RATIO_MAX = 1.05


def build_plugin(folder: Path) -> Path:
    library = folder / "largest_counts.so"
    flags = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden"]
    flags += [f"-I{INTERFACE}", "-o", str(library)]
    subprocess.run(["cc", *flags, str(PLUGIN)], check=True)
    return library


def random_samples(compiled: Compilation, count: int) -> Sequence[Tensors]:
    return generate_samples(compiled.module.io.inputs, count).samples


def check_runs(
    compiled: Compilation, bound: TimeBound, samples: Sequence[Tensors], folder: Path
) -> int:
    """Compare counts of runs with a bound, and return the largest total."""
    image = build_image(compiled)
    symbols = {symbol.name: symbol for symbol in image.sizes.symbols}
    counts = folder / "counts.txt"
    names = ("run", "timed_run", "fwr_server_do_run")  # some are inlined
    callers = [symbols[name] for name in names if name in symbols]
    places = {
        "file": build_plugin(folder),
        "from": symbols[f"{compiled.c_prefix}_run"].address & ~1,
        "out": counts,
        "caller": ":".join(f"{s.address & ~1}:{s.size_bytes}" for s in callers),
    }
    argument = ",".join(f"{key}={place}" for key, place in places.items())
    with open_session(compiled, image=image, plugin=argument) as session:
        for sample in samples:
            session.device.write_inputs(sample)
            session.device.execute()
    (calls, largest), *rows = [
        map(int, row.split()) for row in counts.read_text().splitlines()
    ]
    assert calls >= len(samples)
    assert {a: n for a, n in rows if n > bound.path.executions.get(a, 0)} == {}
    assert largest <= bound.instructions
    return largest


def can_count(emulator: str) -> None:
    try:
        check_plugin_support(f"qemu-system-{emulator}")
    except ToolMissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.sampled(2)
@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "qemu-riscv32-virt"])
def test_bounds_hold_for_every_instruction(
    board: str, digits_path: Path, tmp_path: Path
):
    can_count(BOARDS[board])
    compiled = compile_for(load_model(digits_path), board)
    bound = bound_time(compiled)
    largest = check_runs(compiled, bound, random_samples(compiled, 2), tmp_path)
    assert bound.instructions <= RATIO_MAX * largest
    names = [
        operator.name
        for operator in compiled.summary.operators
        if operator.kind != "reshape"
    ]
    assert [operator.name for operator in bound.operators] == names
    assert bound.longest == max(
        bound.operators, key=lambda operator: operator.instructions
    )


@pytest.mark.qemu
def test_cycles_are_bounds_of_modeled_cycles(digits_path: Path):
    can_count("arm")
    compiled = compile_for(load_model(digits_path), "mps2-an386")
    flash = load_board("nucleo-l4r5zi")
    bound, slower = bound_time(compiled), bound_time(compiled, timing_board=flash)
    exact = measure_instructions(compiled, timing_board=flash).total
    assert exact.instructions <= bound.instructions == slower.instructions
    assert bound.cycles < exact.cycles <= slower.cycles


def roots(operator: str) -> Model:
    g = GraphBuilder(operator)
    return g.model(g.call(operator, g.input("x", (1, 4), "float32")))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("board", "operator"),
    [
        ("mps2-an385", "sqrt"),
        ("mps3-an547", "sin"),
        pytest.param("microbit", "sqrt", marks=pytest.mark.deep),
        pytest.param("qemu-riscv32-virt", "sqrt", marks=pytest.mark.deep),
    ],
)
def test_float_functions_have_bounds(board: str, operator: str):
    """Including normalization, errno, and the tail call of the firmware's model."""
    can_count(BOARDS.get(board, "arm"))
    compiled = compile_for(roots(operator), board)
    bound = bound_time(compiled)
    exact = measure_instructions(compiled).total
    assert exact.instructions <= bound.instructions < 20 * exact.instructions


@pytest.mark.qemu
@pytest.mark.parametrize(
    "board",
    ["mps2-an386", pytest.param("microbit", marks=pytest.mark.deep)],
)
@pytest.mark.parametrize("operator", ["*", "/"])
def test_products_and_quotients_of_doubles_have_bounds(
    operator: str, board: str, tmp_path: Path
):
    """Parts of a routine return to its caller; subnormal operands are shifted."""
    can_count("arm")
    g = GraphBuilder("doubles")
    x, z = g.input("x", (4,), "float64"), g.input("z", (4,), "float64")
    y = g.call("expression", x, z, formula=f"a {operator} b")
    compiled = compile_for(g.model(y), board)
    bound = bound_time(compiled)
    subnormal = [5e-324, -5e-324, 2e-310, 5e-324]
    others = [[1.5, 3e-320, 2e300, 0.0], [np.inf, -7.0, 1e-308, 0.1]]
    samples: list[Tensors] = [
        {"x": np.array(x), "z": np.array(subnormal[::-1])} for x in (subnormal, *others)
    ]
    largest = check_runs(compiled, bound, samples, tmp_path)
    assert bound.instructions < 4 * largest


def test_a_host_has_no_bound(digits_path: Path):
    with pytest.raises(UsageError, match="bounds need the code of a microcontroller"):
        bound_time(compile_for(load_model(digits_path)))


@pytest.mark.deep
@pytest.mark.qemu
def test_a_planted_slow_path_raises_the_bound(digits_path: Path, tmp_path: Path):
    compiled = compile_for(load_model(digits_path), "mps2-an386")
    compiled.save(tmp_path)
    source = tmp_path / "model" / "digits.c"
    text = source.read_text()
    place = text.index("\n{\n", text.index("digits_max_pool2d")) + 3
    slow = '    if (x[0] == 77) { for (int i = 0; i < 1000; ++i) { __asm__ volatile("nop"); } }\n'
    source.write_text(text[:place] + slow + text[place:])
    planted = bound_time(compiled, image=build_project(tmp_path, "release"))
    assert 2000 < planted.instructions - bound_time(compiled).instructions < 10_000


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("model", mlperf_tiny.MODELS)
def test_bounds_of_benchmark_models_hold_on_200_inputs(
    board: str, model: str, model_path: Callable[[str], Path], tmp_path: Path
):
    can_count(BOARDS[board])
    loaded = load_model(model_path(f"{model}.tflite"))
    try:
        compiled = compile_for(loaded, board)
        build_image(compiled)
    except DoesNotFitError:
        compiled = emulate(compile_for(loaded, LARGER[board]))
    bound = bound_time(compiled)
    largest = check_runs(compiled, bound, random_samples(compiled, 200), tmp_path)
    ratio = bound.instructions / largest
    print(
        f"{model} {compiled.board.name}: {bound.instructions:,} / {largest:,} = {ratio:.4f}"
    )
    assert ratio <= RATIO_MAX
