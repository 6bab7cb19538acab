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
        is_near = ((ours.int() - value.int()).abs() == 1) & (
            (steps - tie).abs() <= NEAR_TIE
        )
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
        self._stored = {
            name: _stored(program, source)
            for table in (
                signature.inputs_to_parameters,
                signature.inputs_to_buffers,
                signature.inputs_to_lifted_tensor_constants,
            )
            for name, source in table.items()
        }
        self._buffers = {
            source: name for name, source in signature.inputs_to_buffers.items()
        }
        self.input_names = [str(name) for name in signature.user_inputs]
        specs = [
            spec for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"
        ]
        self.output_names = [f"{k}:{spec.arg.name}" for k, spec in enumerate(specs)]
        nodes = [
            node.name for node in program.graph.nodes if node.op == "call_function"
        ]
        self.layer_names = dict(enumerate(nodes)) if layers else {}

    def run(self, inputs: Sequence[Array]) -> Iterable[Array]:
        """Run one sample; return the outputs, then the layers by their names."""
        import torch

        feeds = {
            name: torch.from_numpy(np.array(value))
            for name, value in zip(self.input_names, inputs, strict=True)
        }
        values = self._stored | feeds
        names = [
            node.name for node in self._program.graph.nodes if node.op == "placeholder"
        ]
        with torch.no_grad():
            results = self._interpreter.run(*(values.get(name) for name in names))
        outputs = []
        for spec, value in zip(
            self._program.graph_signature.output_specs, results, strict=True
        ):
            if spec.kind.name == "USER_OUTPUT":
                outputs.append(value.numpy())
            elif spec.kind.name == "BUFFER_MUTATION":
                self._stored[self._buffers[spec.target]] = value.clone()
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
                self._recorded[node.name] = value.detach().clone().numpy()
            return value

        interpreter.run_node = run_and_record
        return interpreter


def _stored(program: ExportedProgram, source: str) -> Tensor:
    """Return a copy of a parameter, buffer or constant, which a run may change."""
    table = program.state_dict if source in program.state_dict else program.constants
    return table[source].detach().clone()
