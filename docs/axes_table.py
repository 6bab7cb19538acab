"""Print the table of docs/reference/bounded-axes.md: public models at sizes of an axis.

python docs/axes_table.py MODELS...     # folders with the models, by their SHA-256

Every size is compared with the model's runtime, resized to it. Instructions are those
of the largest size on mps2-an386, beside the same model with that size fixed.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.verify.verification import verify
from firmwright.frontends import onnx, tflite
from firmwright.frontends.onnx import BoundedShapes, ModelOverrides
from firmwright.ir.bounded_axis import BoundedAxis

BOARD = "mps2-an386"


@dataclass(frozen=True, slots=True)
class AxisCase:
    """A public model by the first digits of its SHA-256, with the sizes of its axis."""

    digits: str
    title: str
    axis: str
    least: int
    most: int


CASES = (
    AxisCase("b3875683c1", "Keras example of sonos/tract", "batch", 1, 20),
    AxisCase("f42abf31a7", "sensor classifier of tillh42/ContSys", "time", 16, 35),
    AxisCase(
        "999066f937", "classifier of danukaravishan/tinyml_deployment", "batch", 1, 20
    ),
    AxisCase(
        "76667f88bd", "int8 keywords of tum-ei-eda/mlonmcu-models", "batch", 1, 20
    ),
    AxisCase("7924587879", "policy of 98PASS/RL_Godot", "batch", 1, 20),
    AxisCase("88fab4febb", "trees of LightGBM, sonos/tract", "batch", 1, 20),
    AxisCase("bdc851922f", "Italian sentiment of ZantFoundation/Z-Ant", "batch", 1, 20),
    AxisCase("87cf24194e", "int8 anomaly detection of MLPerf Tiny", "batch", 1, 20),
)


def open_shapes(path: Path) -> dict[str, tuple[int | None, ...]]:
    reader = onnx if path.suffix == ".onnx" else tflite
    return reader.open_inputs(path.read_bytes(), path.name)


def load(path: Path, case: AxisCase, *, is_fixed: bool = False) -> Model:
    """Load a model with its axis, or with the largest size of it."""
    shapes: dict[str, tuple[int, ...]] = {}
    places: dict[str, tuple[int, ...]] = {}
    for name, shape in open_shapes(path).items():
        shapes[name] = tuple(case.most if n is None else n for n in shape)
        places[name] = tuple(k for k, n in enumerate(shape) if n is None)
    if is_fixed:
        return load_model(path, overrides=ModelOverrides(shapes))
    axis = BoundedAxis(case.axis, case.least, case.most)
    overrides = ModelOverrides(shapes, bounded=BoundedShapes(axis, places))
    return load_model(path, overrides=overrides)


def row(path: Path, case: AxisCase) -> str:
    """Return the row of a model in the table."""
    model = load(path, case)
    sizes = case.most - case.least + 1
    on_host = compile_for(model)
    result = verify(on_host, samples=sizes)
    counts: list[int] = []
    for each in (load(path, case, is_fixed=True), model):
        counts.append(measure_instructions(compile_for(each, BOARD)).total.instructions)
    fixed, varying = counts
    cost = 100 * (varying - fixed) / fixed
    cells = [
        case.title,
        f"{case.axis}, {case.least} to {case.most}",
        result.reference,
        str(result.samples),
        f"{result.values:,}",
        f"{result.mismatches:,}",
        f"{fixed:,}",
        f"{varying:,}",
        f"{cost:+.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table as Markdown."""
    files: dict[str, Path] = {}
    for folder in sys.argv[1:]:
        for path in sorted(Path(folder).iterdir()):
            if path.suffix in (".onnx", ".tflite"):
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                files[digest[:10]] = path
    print(
        "| model | axis | runtime | sizes | values | differing | fixed | axis | cost |"
    )
    print("|---|---|---|--:|--:|--:|--:|--:|--:|")
    for case in CASES:
        print(row(files[case.digits], case), flush=True)


if __name__ == "__main__":
    main()
