"""Print the table of docs/smaller-faster.md: parts of models' flash on Cortex-M4.

python docs/flash_table.py MODELS     # the folder of the MLPerf Tiny models
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.ir.graph.nodes import Function
from firmwright.passes.graph.fold_constant_channels import PASS
from firmwright.pipeline import Compilation

BOARD = "mps2-an386"
MODELS = {
    "kws_ref_model": "kws",
    "vww_96_int8": "vww",
    "pretrainedResnet_quant": "ic",
    "ad01_int8": "ad",
    "str_ww_ref_model": "ww",
}
BUDGETS = {
    "kws_ref_model": 24_368 + 10_000,
    "vww_96_int8": 33_528 + 10_000,
    "pretrainedResnet_quant": 78_744 + 10_000,
    "ad01_int8": 270_880 + 4_000,
    "str_ww_ref_model": 49_412 + 10_000,
}
"""Bytes that `--flash` is given: weights, biases, and 10,000 or 4,000 bytes."""
LAYERS = ("conv2d", "depthwise_conv2d", "fully_connected")


@dataclass(frozen=True, slots=True)
class FlashParts:
    """The model's flash in bytes.

    `raw` are the weights and biases of the channels that are computed, as wide as in
    the model file; `tables` the other constants, or what packing adds; `padding` the
    rest, such as alignment and functions of the C library.
    """

    raw: int
    code: int
    tables: int
    padding: int


def flash_parts(compiled: Compilation, image: Image) -> FlashParts:
    module = PASS(compiled.imported)
    graph, constants = module.entry, module.constants
    assert isinstance(graph, Function)
    layers = (call for call in graph.body if call.op in LAYERS)
    weights = (
        value for call in layers for value in call.inputs[1:] if value is not None
    )
    raw = sum(constants[str(value.constant)].size_bytes for value in weights)
    own = [
        s for s in image.sizes.symbols if s.name.startswith(f"{compiled.module.name}_")
    ]
    code = sum(symbol.size_bytes for symbol in own if symbol.kind == "text")
    tables = sum(symbol.size_bytes for symbol in own if symbol.kind == "rodata") - raw
    return FlashParts(raw, code, tables, image.model_flash_bytes - raw - code - tables)


def main() -> None:
    """Print the table as Markdown."""
    print("| model | options | raw | code | tables | padding | flash | instructions |")
    print("| --- | --- | --: | --: | --: | --: | --: | --: |")
    for name, short in MODELS.items():
        model = load_model(Path(sys.argv[1]) / f"{name}.tflite")
        for options, given in (
            ("", {}),
            (f"`--flash {BUDGETS[name]}`", {"flash_bytes": BUDGETS[name]}),
            ("`--optimize size`", {"optimize": "size"}),
        ):
            compiled = compile_for(model, BOARD, **given)  # type: ignore[arg-type]
            image, count = (
                build_image(compiled),
                measure_instructions(compiled).total.instructions,
            )
            parts = flash_parts(compiled, image)
            figures = (
                parts.raw,
                parts.code,
                parts.tables,
                parts.padding,
                image.model_flash_bytes,
            )
            cells = " | ".join(f"{figure:,}" for figure in (*figures, count))
            print(f"| {short} | {options} | {cells} |")


if __name__ == "__main__":
    main()
