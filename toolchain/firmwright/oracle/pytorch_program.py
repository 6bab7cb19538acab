"""Execution of a program of torch.export by PyTorch, in the worker process."""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from firmwright.base.dtypes import Array

if TYPE_CHECKING:
    from torch import Tensor, fx
    from torch.export import ExportedProgram

_OPERATOR_MODULES = ("torch.ao.quantization.fx._decomposed", "torchao.quantization")
"""Modules that define operators of quantized programs; absent in some versions."""
_QUANTIZE = ("quantized_decomposed.quantize_per_tensor", "torchao.quantize_affine")
NEAR_TIE = 1 / 64
"""The distance from a tie, in steps, within which either integer may result."""


class TieRounding:
    """Replaces integers of floats near a tie by known ones; counts them.

    `integers` are results of quantize operators by their names, samples on the leading
    axis.
    """

    def __init__(self, integers: Mapping[str, Array]) -> None:
        self.integers = integers
        self.changed = self.values = 0

    @property
    def counts(self) -> tuple[int, int]:
        return self.changed, self.values

    def rounded(
        self,
        node: fx.Node,
        args: Sequence[fx.node.Argument],
        value: Tensor,
        sample: int,
    ) -> Tensor:
        """Return a quantize operator's result `value`, near ties the known integers."""
        import torch

        if node.name not in self.integers or not str(node.target).startswith(_QUANTIZE):
            return value
        given = self.integers[node.name][sample]
        if value.dtype == torch.uint8 and given.dtype == np.int8:
            given = given.view(np.uint8) ^ np.uint8(128)
        if tuple(value.shape) != given.shape or value.numpy().dtype != given.dtype:
            return value
        scale, point = args[2:4] if "affine" in str(node.target) else args[1:3]
        ours = torch.from_numpy(given.copy())
        tie = (ours.double() + value.double()) / 2 - float(point)
        steps = args[0].double() / float(scale)
        is_neighbor = (ours.int() - value.int()).abs() == 1
        is_near = is_neighbor & ((steps - tie).abs() <= NEAR_TIE)
        self.values += value.numel()
        self.changed += int(is_near.sum())
        return torch.where(is_near, ours, value)


class PyTorchProgram:
    """Runs the graph node by node; buffers keep their values between samples.

    Near ties, results of quantize operators are those of `integers`, if it has them.
    """

    package = "torch"

    def __init__(
        self, model: bytes, *, layers: bool, integers: Mapping[str, Array] | None = None
    ) -> None:
        import torch

        for name in _OPERATOR_MODULES:
            try:
                importlib.import_module(name)
            except ImportError:
                continue
        torch.set_num_threads(1)
        program = torch.export.load(io.BytesIO(model))
        self._recorded: dict[str, Array] = {}
        self._program = program
        self.rounding = TieRounding(integers or {})
        self._samples = 0
        self._interpreter = self._recording_interpreter(program.graph_module)
        signature = program.graph_signature
        self._stored: dict[str, Tensor] = {}
        for table in (
            signature.inputs_to_parameters,
            signature.inputs_to_buffers,
            signature.inputs_to_lifted_tensor_constants,
        ):
            for name, source in table.items():
                self._stored[name] = _stored(program, source)
        self._buffers: dict[str, str] = {}
        for name, source in signature.inputs_to_buffers.items():
            self._buffers[source] = name
        self.input_names = [str(name) for name in signature.user_inputs]
        self.output_names: list[str] = []
        for spec in signature.output_specs:
            if spec.kind.name == "USER_OUTPUT":
                place = len(self.output_names)
                self.output_names.append(f"{place}:{spec.arg.name}")
        nodes = _node_names(program.graph, "call_function")
        self.layer_names = dict(enumerate(nodes)) if layers else {}

    def run(self, inputs: Sequence[Array]) -> Iterable[Array]:
        """Run one sample; return the outputs, then the layers by their names."""
        import torch

        values = dict(self._stored)
        for name, value in zip(self.input_names, inputs, strict=True):
            values[name] = torch.from_numpy(np.array(value))
        names = _node_names(self._program.graph, "placeholder")
        with torch.no_grad():
            results = self._interpreter.run(*map(values.get, names))
        outputs = []
        specs = self._program.graph_signature.output_specs
        for spec, result in zip(specs, results, strict=True):
            if spec.kind.name == "USER_OUTPUT":
                outputs.append(result.numpy())
            elif spec.kind.name == "BUFFER_MUTATION":
                self._stored[self._buffers[spec.target]] = result.clone()
        self._samples += 1
        empty = np.zeros(0)
        layers = (self._recorded.get(name, empty) for name in self.layer_names.values())
        return [*outputs, *layers]

    def _recording_interpreter(self, module: fx.GraphModule) -> fx.Interpreter:
        """Return an interpreter of the graph that stores each tensor as an array."""
        import torch

        interpreter = torch.fx.Interpreter(module)
        run_node = interpreter.run_node

        def run_and_record(node: fx.Node) -> object:
            value = run_node(node)
            if node.op == "call_function" and isinstance(value, torch.Tensor):
                args, _ = interpreter.fetch_args_kwargs_from_env(node)
                value = self.rounding.rounded(node, args, value, self._samples)
                numbers = value.detach().resolve_conj()
                if value.is_complex():
                    # As Firmwright's importer: pairs of real and imaginary parts.
                    numbers = torch.view_as_real(numbers)
                self._recorded[node.name] = numbers.clone().numpy()
            return value

        interpreter.run_node = run_and_record
        return interpreter


def _node_names(graph: fx.Graph, op: str) -> list[str]:
    return [node.name for node in graph.nodes if node.op == op]


def _stored(program: ExportedProgram, source: str) -> Tensor:
    """Return a copy of a parameter, buffer or constant, which a run may change."""
    table = program.state_dict if source in program.state_dict else program.constants
    return table[source].detach().clone()
