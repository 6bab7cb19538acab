# ruff: noqa: INP001  # a script, not a package
r"""Write the main program of a network for TensorFlow Lite Micro.

    python benchmarks/peers/tflm_harness.py MODEL.tflite MAIN.cc

The program (tflm_main.cc.in) registers the operators of the model alone, those whose
tensors are all int8 or int16 by the registrations for these types, calls
`MicroInterpreter::Invoke` in `root`, and prints the arena and the outputs. Without a
model (`--empty`) it is the image whose size side_by_side.py subtracts. Compile it as
C++17 with TFLM's flags, and link it with TFLM's library and a script that defines
stack_top, data_start, data_end, data_load, bss_start and bss_end, and puts .vectors
where the machine starts.
"""

import argparse
from pathlib import Path

from firmwright.frontends.tflite.decoded_model import NO_TENSOR, RawSubgraph
from firmwright.frontends.tflite.preprocess import preprocess_tflite
from firmwright.frontends.tflite.reader import read_tflite

TEMPLATE = Path(__file__).with_name("tflm_main.cc.in")
ARENA_BYTES = 1_500_000
OTHER_NAMES = {"UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTM"}
KERNELS = {
    "int8": "ADD AVERAGE_POOL_2D CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED MAX_POOL_2D "
    "MAXIMUM MINIMUM MUL PAD SOFTMAX SVDF TRANSPOSE UNIDIRECTIONAL_SEQUENCE_LSTM",
    "int16": "ADD AVERAGE_POOL_2D CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED "
    "MAX_POOL_2D SOFTMAX UNIDIRECTIONAL_SEQUENCE_LSTM",
}
"""The operators that have a registration for one element type alone."""


def make_main(model: Path | None) -> str:
    """Return the program's text; without a model, that of the empty image."""
    values = {"is_empty": "1"}
    if model is not None:
        data = preprocess_tflite(model.read_bytes(), model.name, {})
        graphs = read_tflite(data, model.name).subgraphs
        types = _types_by_operator(graphs)
        added = [_added(name, types[name]) for name in sorted(types)]
        variables = "nullptr"
        if "VAR_HANDLE" in types:
            count = sum(node.op == "VAR_HANDLE" for node in graphs[0].nodes)
            variables = f"tflite::MicroResourceVariables::Create(allocator, {count})"
        values = {
            "is_empty": "0",
            "model": str(model.absolute()),
            "arena_bytes": str(ARENA_BYTES),
            "operator_count": str(len(added)),
            "operators": "\n  ".join(added),
            "variables": variables,
        }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    return text


def _types_by_operator(graphs: tuple[RawSubgraph, ...]) -> dict[str, set[str]]:
    types: dict[str, set[str]] = {}
    for graph in graphs:
        for node in graph.nodes:
            used = [*node.inputs[:1], *node.outputs[:1]]
            found = {graph.tensors[k].dtype for k in used if k != NO_TENSOR}
            types.setdefault(node.op, set()).update(found)
    return types


def _added(operator: str, types: set[str]) -> str:
    """Return the statement that adds an operator to the resolver."""
    camel = "".join(
        part if part[0].isdigit() else part.title() for part in operator.split("_")
    )
    kernel = ""
    for dtype, names in KERNELS.items():
        if types == {dtype} and operator in names.split():
            kernel = f"tflite::Register_{operator}_{dtype.upper()}()"
    return f"resolver.Add{OTHER_NAMES.get(operator, camel)}({kernel});"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("main", type=Path)
    parser.add_argument("--empty", action="store_true")
    args = parser.parse_args()
    if (args.model is None) != args.empty:
        parser.error("give a model or --empty")
    args.main.write_text(make_main(args.model), encoding="utf-8")


if __name__ == "__main__":
    main()
