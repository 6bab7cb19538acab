"""Programs quantized as the quantizers of PyTorch, torchao and ExecuTorch do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import (
    convert_pt2e,
    prepare_pt2e,
    prepare_qat_pt2e,
)

from tests.pytorch.networks import make_network

CALIBRATION_SAMPLES = 8
TRAINING_STEPS = 4
Tensors = tuple[torch.Tensor, ...]


def xnnpack(is_qat: bool = False) -> Any:
    """Return the XNNPACK quantizer of ExecuTorch: int8, weights per channel."""
    from torchao.testing.pt2e import _xnnpack_quantizer as module

    config = module.get_symmetric_quantization_config(
        is_per_channel=True, is_qat=is_qat
    )
    return module.XNNPACKQuantizer().set_global(config)


def x86() -> Any:
    """Return the quantizer for desktop CPUs: uint8 activations."""
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as module

    config = module.get_default_x86_inductor_quantization_config()
    return module.X86InductorQuantizer().set_global(config)


def cortex_m() -> Any:
    """Return ExecuTorch's quantizer for Cortex-M: int8 with int32 biases."""
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer

    return CortexMQuantizer()


def _noise(inputs: Tensors, batch: int | None = None) -> Tensors:
    """Return random floats in the memory format of `inputs`; integers are theirs."""
    samples = (
        torch.randn(batch or len(x), *x.shape[1:]) if x.is_floating_point() else x
        for x in inputs
    )
    return tuple(
        sample.to(memory_format=torch.channels_last)
        if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        else sample
        for sample, x in zip(samples, inputs, strict=True)
    )


def calibrated(
    model: nn.Module, inputs: Tensors, quantizer: Any
) -> torch.export.ExportedProgram:
    """Return a program quantized after training, with noise as the samples."""
    program = torch.export.export(model, inputs)
    prepared = prepare_pt2e(program.module(check_guards=False), quantizer)
    for _ in range(CALIBRATION_SAMPLES):
        prepared(*_noise(inputs))
    return torch.export.export(convert_pt2e(prepared), inputs)


def trained(
    model: nn.Module, inputs: Tensors, quantizer: Any
) -> torch.export.ExportedProgram:
    """Return a program trained for a few steps with the quantizer's rounding."""
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = tuple({0: batch} for _ in inputs)
    program = torch.export.export(
        model.train(), _noise(inputs, 2), dynamic_shapes=shapes
    )
    prepared = prepare_qat_pt2e(program.module(check_guards=False), quantizer)
    optimizer = torch.optim.SGD(prepared.parameters(), 1e-3)
    for _ in range(TRAINING_STEPS):
        loss = prepared(*_noise(inputs, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    converted = convert_pt2e(prepared)
    move_exported_model_to_eval(converted)
    return torch.export.export(converted, inputs)


def with_int8_weights(
    model: nn.Module, inputs: Tensors
) -> torch.export.ExportedProgram:
    """Return a program of torchao.quantize_ with int8 weights and float activations."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_
    from torchao.utils import unwrap_tensor_subclass

    quantize_(model, Int8WeightOnlyConfig())
    return torch.export.export(unwrap_tensor_subclass(model), inputs)


METHODS: dict[str, Callable[[nn.Module, Tensors], torch.export.ExportedProgram]] = {
    "int8": lambda model, inputs: calibrated(model, inputs, xnnpack()),
    "x86": lambda model, inputs: calibrated(model, inputs, x86()),
    "cortexm": lambda model, inputs: calibrated(
        model.to(memory_format=torch.channels_last),
        tuple(x.to(memory_format=torch.channels_last) for x in inputs),
        cortex_m(),
    ),
    "qat": lambda model, inputs: trained(model, inputs, xnnpack(is_qat=True)),
    "ao": with_int8_weights,
}
"""Methods of quantization by the suffix of an archive's name."""


def quantized(name: str) -> torch.export.ExportedProgram:
    """Return the program of a network and a method, for example "resnet8_x86"."""
    network, _, method = name.rpartition("_")
    return METHODS[method](*make_network(network))
