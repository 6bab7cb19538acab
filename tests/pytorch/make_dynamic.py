"""Makes dynamic/tagger.pt2, a program with a dynamic size, and PyTorch's outputs.

    PYTHONPATH=toolchain python -m tests.pytorch.make_dynamic

Needs torch. tagger.npz has the inputs and outputs of every size.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tests.pytorch.make_archives import STEPS_OF_WEIGHTS, saved, slim

FOLDER = Path(__file__).parent / "dynamic"
LEAST, MOST = 3, 12


class Tagger(nn.Module):
    """Labels of the steps of a sequence by attention, windows and a mean over it."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(4, 6)
        self.attention = nn.Linear(6, 6)
        self.window = nn.Conv1d(6, 5, 3, padding=1)
        self.label = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, gates: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = x.shape[1]
        steps = torch.relu(self.step(x)) * gates.reshape(1, count, 1)
        scores = torch.softmax(self.attention(steps) @ steps.transpose(1, 2), -1)
        mixed = (scores @ steps).transpose(1, 2)
        windows = torch.relu(self.window(mixed))
        both = torch.cat([windows, windows[:, :, :-1]], dim=2)
        labels = self.label(windows.transpose(1, 2)).view(count, 3)
        return F.log_softmax(labels, -1), both.mean(dim=2), both.flatten(1)


def main() -> None:
    torch.manual_seed(5)
    model = Tagger().eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(torch.round(weights * STEPS_OF_WEIGHTS) / STEPS_OF_WEIGHTS)
    time = Dim("time", min=LEAST, max=MOST)
    program = torch.export.export(
        model,
        (torch.ones(1, 7, 4), torch.ones(7)),
        dynamic_shapes={"x": {1: time}, "gates": {0: time}},
    )
    arrays: dict[str, np.ndarray] = {}
    for size in range(LEAST, MOST + 1):
        inputs = torch.randn(1, size, 4), torch.rand(size)
        with torch.no_grad():
            outputs = program.module()(*inputs)
        arrays[f"{size}/x"], arrays[f"{size}/gates"] = (v.numpy() for v in inputs)
        for index, value in enumerate(outputs):
            arrays[f"{size}/{index}"] = value.numpy()
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "tagger.pt2").write_bytes(slim(saved(program)))
    np.savez_compressed(FOLDER / "tagger.npz", **arrays)


if __name__ == "__main__":
    main()
