"""Train the network for tests of quantized models in PyTorch and export it as ONNX.

The data are scikit-learn's handwritten digits. The script writes, next to this file:
residual.onnx (float), residual_qat.onnx (trained with rounding, so with QuantizeLinear
and DequantizeLinear around each layer) and digits.npz (1,000 images, 16 grays).

Needs PyTorch, scikit-learn and onnx. The modules of examples/03_pytorch do the
rounding.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "examples" / "03_pytorch"))
from train import Layer, Rounding, accuracy, rounded, train  # noqa: E402

SEED, HELD_OUT = 3, 300


class Residual(nn.Module):
    """A convolution, a depthwise residual block, pools, a dense layer, softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.image = Rounding()
        self.first = Layer(1, 12, 3)
        self.block = nn.Sequential(Layer(12, 12, 3, 1, 12), Layer(12, 12, 1))
        self.sum, self.pooled, self.mean = Rounding(), Rounding(), Rounding()
        self.second = Layer(12, 20, 3)
        self.last = nn.Linear(20, 10)
        self.digit, self.share = Rounding(), Rounding()

    def fold(self) -> None:
        for module in self.modules():
            if isinstance(module, Layer):
                module.fold()
            elif isinstance(module, Rounding):
                module.is_on = True

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.image(x))
        x = self.sum(x + self.block(x))
        x = self.pooled(
            nn.functional.avg_pool2d(nn.functional.max_pool2d(x, 2), 3, 1, 1)
        )
        x = self.mean(nn.functional.adaptive_avg_pool2d(self.second(x), 1)).flatten(1)
        weights = rounded(self.last.weight) if self.digit.is_on else self.last.weight
        x = self.digit(nn.functional.linear(x, weights, self.last.bias))
        return self.share(x.softmax(1))


class Logits(nn.Module):
    """The network without softmax, for training."""

    def __init__(self, network: Residual) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(self.network(x).clamp(min=1e-6))


def export(network: Residual, name: str) -> None:
    torch.onnx.export(
        network,
        (torch.zeros(1, 1, 8, 8),),
        HERE / name,
        input_names=["image"],
        output_names=["share"],
        dynamo=False,
        opset_version=17,
        verbose=False,
    )


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    digits = load_digits()
    images = torch.tensor((digits.images[:, None] / 16).astype(np.float32))
    labels = torch.tensor(digits.target)
    network = Residual()
    logits = Logits(network)
    train(logits, images[HELD_OUT:], labels[HELD_OUT:], 30, 4e-3)
    print("in floats      ", accuracy(logits, images[:HELD_OUT], labels[:HELD_OUT]))
    export(network, "residual.onnx")
    network.fold()
    train(logits, images[HELD_OUT:], labels[HELD_OUT:], 4, 5e-4)
    print("rounded to int8", accuracy(logits, images[:HELD_OUT], labels[:HELD_OUT]))
    export(network, "residual_qat.onnx")
    np.savez_compressed(
        HERE / "digits.npz", images=digits.images[:1000].astype(np.uint8)
    )


if __name__ == "__main__":
    main()
