"""Train a network in PyTorch and export it as ONNX with both exporters and with QAT.

The data are scikit-learn's bundled 8x8 handwritten digits (no download). The script
writes, next to this file: digits.onnx (float, the current torch.onnx exporter),
digits_script.onnx (the same network, older exporter), digits_qat.onnx
(quantization-aware training: QuantizeLinear and DequantizeLinear around each layer) and
calibration.npz (32 images for `firmwright quantize`).

One seed and one thread, so a second run with the same versions gives the same networks.
Training and calibration do not use the held-out fifth.

Needs PyTorch, scikit-learn and onnxscript:  pip install torch scikit-learn onnx
onnxscript
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

SEED = 7
HERE = Path(__file__).parent
EPOCHS, EPOCHS_QAT = 60, 8


class Rounding(nn.Module):
    """Rounding of an activation to int8; its scale follows the values in training."""

    scale: Tensor
    zero_point: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.is_on = False
        self.low, self.high = 0.0, 0.0
        self.register_buffer("scale", torch.tensor(1.0))
        self.register_buffer("zero_point", torch.tensor(0, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_on:
            return x
        if self.training:
            self.low = min(self.low, float(x.min()))
            self.high = max(self.high, float(x.max()))
            self.scale.fill_((self.high - self.low) / 255)
            self.zero_point.fill_(round(-128 - self.low / float(self.scale)))
        return torch.fake_quantize_per_tensor_affine(
            x, self.scale, self.zero_point, -128, 127
        )


def rounded(weights: Tensor) -> Tensor:
    """Round weights to int8 with a scale per filter."""
    scales = weights.detach().abs().flatten(1).amax(1).clamp(min=1e-8) / 127
    zeros = torch.zeros(len(scales), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weights, scales, zeros, 0, -128, 127)


class Layer(nn.Module):
    """Convolution, normalization, relu; after `fold`, without the normalization."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1
    ):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups)
        self.norm: nn.Module = nn.BatchNorm2d(outputs)
        self.out = Rounding()

    def fold(self) -> None:
        """Fold the normalization into the weights, and round from now on."""
        self.conv = nn.utils.fusion.fuse_conv_bn_eval(
            self.conv.eval(), self.norm.eval()
        )
        self.norm = nn.Identity()
        self.out.is_on = True

    def forward(self, x: Tensor) -> Tensor:
        conv = self.conv
        weights = rounded(conv.weight) if self.out.is_on else conv.weight
        x = nn.functional.conv2d(
            x, weights, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups
        )
        return self.out(torch.relu(self.norm(x)))


class Digits(nn.Module):
    """A convolution, two separable blocks, a mean over the image, a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.image = Rounding()
        self.layers = nn.Sequential(
            Layer(1, 16, 3),
            Layer(16, 16, 3, 2, 16),
            Layer(16, 32, 1),
            Layer(32, 32, 3, 1, 32),
            Layer(32, 32, 1),
        )
        self.pooled = Rounding()
        self.last = nn.Linear(32, 10)
        self.digit = Rounding()

    def fold(self) -> None:
        for layer in self.layers:
            layer.fold()
        for rounding in (self.image, self.pooled, self.digit):
            rounding.is_on = True

    def forward(self, x: Tensor) -> Tensor:
        x = self.pooled(self.layers(self.image(x)).mean((2, 3)))
        weights = rounded(self.last.weight) if self.digit.is_on else self.last.weight
        return self.digit(nn.functional.linear(x, weights, self.last.bias))


def train(
    network: Digits, images: Tensor, labels: Tensor, epochs: int, rate: float
) -> None:
    optimiser = torch.optim.Adam(network.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    network.train()
    for _ in range(epochs):
        for picked in torch.randperm(len(images)).split(32):
            noisy = images[picked] + 0.02 * torch.randn(len(picked), 1, 8, 8)
            loss = nn.functional.cross_entropy(network(noisy), labels[picked])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
    network.eval()


def accuracy(network: Digits, images: Tensor, labels: Tensor) -> str:
    with torch.no_grad():
        right = (network(images).argmax(1) == labels).float().mean()
    return f"{100 * float(right):.1f} %"


def export(network: Digits, name: str, *, dynamo: bool) -> None:
    """Export with a batch of one image, fixed sizes, and the weights in the file."""
    torch.onnx.export(
        network,
        (torch.zeros(1, 1, 8, 8),),
        HERE / name,
        input_names=["image"],
        output_names=["digit"],
        external_data=False,
        dynamo=dynamo,
        opset_version=18 if dynamo else 17,
        verbose=False,
    )


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    split = train_test_split(
        images, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target
    )
    shown, held, shown_labels, held_labels = map(torch.tensor, split)
    network = Digits()
    train(network, shown, shown_labels, EPOCHS, 4e-3)
    print("in floats      ", accuracy(network, held, held_labels))
    export(network, "digits.onnx", dynamo=True)
    export(network, "digits_script.onnx", dynamo=False)
    np.savez_compressed(HERE / "calibration.npz", images=shown[:32].numpy())
    network.fold()
    train(network, shown, shown_labels, EPOCHS_QAT, 5e-4)
    print("rounded to int8", accuracy(network, held, held_labels))
    export(network, "digits_qat.onnx", dynamo=False)


if __name__ == "__main__":
    main()
