"""PyTorch expressions of float and integer inputs that cover the translators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]
"""A function, and the shapes of its float inputs."""

IMAGE, VOLUME, ROWS, VECTOR = (1, 4, 6, 8), (1, 4, 9), (2, 3, 5), (7,)


def _embedding(x: torch.Tensor) -> torch.Tensor:
    table = x[:1, 0, 0] + torch.arange(14.0).reshape(7, 2)
    return F.embedding((x * 2).abs().long().clamp(max=6), table)


def _index(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def unary() -> dict[str, Case]:
    functions = {
        "abs": torch.abs,
        "asinh": torch.asinh,
        "atan": torch.atan,
        "ceil": torch.ceil,
        "cos": torch.cos,
        "cosh": torch.cosh,
        "elu": F.elu,
        "erf": torch.erf,
        "exp": torch.exp,
        "expm1": torch.expm1,
        "floor": torch.floor,
        "gelu": F.gelu,
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "hardtanh": F.hardtanh,
        "leaky_relu": F.leaky_relu,
        "log_sigmoid": F.logsigmoid,
        "mish": F.mish,
        "neg": torch.neg,
        "relu": F.relu,
        "relu6": F.relu6,
        "round": torch.round,
        "selu": F.selu,
        "sigmoid": torch.sigmoid,
        "sign": torch.sign,
        "silu": F.silu,
        "sin": torch.sin,
        "sinh": torch.sinh,
        "softplus": F.softplus,
        "softsign": F.softsign,
        "square": torch.square,
        "tan": torch.tan,
        "tanh": torch.tanh,
        "tanhshrink": F.tanhshrink,
    }
    return {name: (f, (ROWS,)) for name, f in functions.items()}


def unary_of_positive_numbers() -> dict[str, Case]:
    functions = {
        "log": torch.log,
        "log10": torch.log10,
        "log1p": torch.log1p,
        "log2": torch.log2,
        "reciprocal": torch.reciprocal,
        "rsqrt": torch.rsqrt,
        "sqrt": torch.sqrt,
    }
    return {
        name: (lambda x, f=f: f(x.abs() + 0.1), (ROWS,))
        for name, f in functions.items()
    }


def binary() -> dict[str, Case]:
    functions = {
        "add": lambda a, b: torch.add(a, b, alpha=3),
        "atan_max": torch.maximum,
        "div": torch.div,
        "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
        "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        "minimum": torch.minimum,
        "mul": torch.mul,
        "remainder": torch.remainder,
        "rsub": lambda a, b: torch.rsub(a, b),
        "sub": lambda a, b: torch.sub(a, b, alpha=0.5),
        "max": torch.max,
        "compare": lambda a, b: ((a > b) & (a != b)) | (a <= 0.5),
        "logical": lambda a, b: torch.logical_xor(a > 0, torch.logical_not(b > 0)),
        "lerp": lambda a, b: torch.lerp(a, b, 0.3),
        "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
        "where": lambda a, b: torch.where(a > b, a, 0.0),
    }
    return {name: (f, (ROWS, (3, 1))) for name, f in functions.items()}


def other_elementwise() -> dict[str, Case]:
    return {
        "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), (ROWS,)),
        "clamp": (lambda x: x.clamp(-0.5, 0.25), (ROWS,)),
        "clamp_min": (lambda x: x.clamp_min(0.1), (ROWS,)),
        "pow": (lambda x: x**2 + (x.abs() + 0.1) ** 0.7 + x**3, (ROWS,)),
        "prelu": (lambda x: F.prelu(x, torch.tensor([0.1, 0.2, 0.3, 0.4])), (IMAGE,)),
        "glu": (lambda x: F.glu(x, 1), (IMAGE,)),
        "in_place": (lambda x: F.relu(x * 2, inplace=True).add_(1).mul_(0.5), (ROWS,)),
        "masked_fill": (lambda x: x.masked_fill(x > 0, -3.0), (ROWS,)),
        "integers": (
            lambda x: (
                (x * 10).to(torch.int32) // 3
                + torch.tensor([1, 2, 3, 4, 5]).to(torch.int32) % 3
            ),
            (ROWS,),
        ),
        "promotion": (
            lambda x: (x > 0) + (x * 4).to(torch.int64) * 2 + (x > 1).float(),
            (ROWS,),
        ),
        "softplus_beta": (
            lambda x: F.softplus(x * 9, beta=2.0, threshold=5.0),
            (ROWS,),
        ),
    }


def movement() -> dict[str, Case]:
    return {
        "reshape": (lambda x: x.reshape(2, -1).view(5, 6).flatten(), (ROWS,)),
        "permute": (lambda x: x.permute(2, 0, 1).transpose(0, -1), (ROWS,)),
        "cat": (lambda x: torch.cat([x, x + 1, x], -1), (ROWS,)),
        "stack": (lambda x: torch.stack([x, -x], 1), (ROWS,)),
        "split": (lambda x: sum(p.sum(-1) for p in x.split([2, 3], 2)), (ROWS,)),
        "chunk": (lambda x: x.chunk(3, 2)[2] + x.chunk(3, 2)[0][..., :1], (ROWS,)),
        "unbind": (lambda x: x.unbind(1)[2] - x.unbind(1)[0], (ROWS,)),
        "slice": (lambda x: x[:, 1:, ::2] + x[:, :-1, -3:], (ROWS,)),
        "select": (lambda x: x[-1, 1] + x.select(0, 0)[2], (ROWS,)),
        "narrow": (lambda x: x.narrow(1, 1, 2), (ROWS,)),
        "expand": (
            lambda x: x[:, :1].expand(2, 4, 5) + x[:, :1].expand(-1, 4, -1),
            (ROWS,),
        ),
        "repeat": (lambda x: x.repeat(2, 1, 1, 2) + torch.tile(x, (1, 2)), (ROWS,)),
        "flip": (lambda x: x.flip(0, 2), (ROWS,)),
        "roll": (lambda x: x.roll((1, -2), (0, 2)) + x.roll(4), (ROWS,)),
        "pad": (lambda x: F.pad(x, (1, 2, 0, 1), value=0.5), (ROWS,)),
        "pad_crop": (lambda x: F.pad(x, (-1, 2)), (ROWS,)),
        "pad_reflect": (lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), (IMAGE,)),
        "pad_edge": (lambda x: F.pad(x, (2, 1), mode="replicate"), (VOLUME,)),
        "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (IMAGE,)),
        "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (IMAGE,)),
        "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (IMAGE,)),
        "unfold": (lambda x: x.unfold(2, 3, 2), (VOLUME,)),
        "index_select": (lambda x: x.index_select(2, _index(4, 0, 0)), (ROWS,)),
        "index": (lambda x: x[:, _index(2, 0)], (ROWS,)),
        "gather": (
            lambda x: x.gather(2, torch.ones(2, 3, 2, dtype=torch.int64)),
            (ROWS,),
        ),
        "embedding": (_embedding, (ROWS,)),
        "tril": (lambda x: x.tril() + x.triu(1), (ROWS,)),
        "arange": (lambda x: x + torch.arange(5) * torch.ones_like(x) + 2, (ROWS,)),
        "squeeze": (lambda x: x[:1].squeeze(0).unsqueeze(-1).squeeze(), (ROWS,)),
        "movedim": (lambda x: x.movedim(0, -1), (ROWS,)),
        "slice_write": (
            lambda x: torch.slice_scatter(x, x[:, :1] * 2, 1, 1, 2),
            (ROWS,),
        ),
        "select_write": (lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, 2), (ROWS,)),
        "index_copy": (lambda x: x.index_copy(1, _index(2, 0), x[:, :2] + 5), (ROWS,)),
        "index_put": (lambda x: x.index_put((_index(1),), x[:1] + 5), (ROWS,)),
        "scalar_output": (lambda x: x.sum(), (ROWS,)),
    }


def reductions() -> dict[str, Case]:
    return {
        "sum": (lambda x: x.sum(1) + x.sum((0, 2)).sum(), (ROWS,)),
        "mean": (
            lambda x: x.mean((2, 3)) + x.mean((2, 3), keepdim=True).flatten(1),
            (IMAGE,),
        ),
        "amax": (lambda x: x.amax(1, keepdim=True) - x.amin(1, keepdim=True), (ROWS,)),
        "max_dim": (lambda x: x.max(1)[0] + x.max(1)[1] + x.min(), (ROWS,)),
        "argmax": (lambda x: x.argmax(-1) + x.argmax() + x.argmin(-1), (ROWS,)),
        "var": (lambda x: x.var(-1) + x.std(-1, unbiased=False) + x.var(), (ROWS,)),
        "prod": (lambda x: x.prod(1), (ROWS,)),
        "norm": (
            lambda x: x.norm(dim=-1) + torch.linalg.vector_norm(x, 1, -1),
            (ROWS,),
        ),
        "any": (lambda x: (x > 1).any(-1) | (x > -1).all(-1), (ROWS,)),
        "cumsum": (lambda x: x.cumsum(1), (ROWS,)),
        "topk": (lambda x: x.topk(2, -1)[0], (ROWS,)),
        "logsumexp": (lambda x: x.logsumexp(-1), (ROWS,)),
        "softmax": (lambda x: x.softmax(1) + x.log_softmax(-1), (ROWS,)),
        "layer_norm": (lambda x: F.layer_norm(x, (3, 5)), (ROWS,)),
        "rms_norm": (lambda x: F.rms_norm(x, (5,)), (ROWS,)),
        "normalize": (lambda x: F.normalize(x, dim=-1), (ROWS,)),
        "instance_norm": (lambda x: F.instance_norm(x), (IMAGE,)),
        "group_norm": (lambda x: F.group_norm(x, 2), (IMAGE,)),
    }


def products() -> dict[str, Case]:
    return {
        "matmul": (lambda a, b: a @ b.transpose(-1, -2), ((2, 3, 5), (2, 4, 5))),
        "bmm": (lambda a, b: torch.bmm(a, b), ((2, 3, 5), (2, 5, 4))),
        "einsum": (
            lambda a, b: torch.einsum("bij,bkj->bik", a, b),
            ((2, 3, 5), (2, 4, 5)),
        ),
        "linear_vector": (nn.Linear(7, 3), (VECTOR,)),
        "linear_no_bias": (nn.Linear(5, 3, bias=False), (ROWS,)),
        "attention": (F.scaled_dot_product_attention, ((1, 2, 4, 8),) * 3),
        "attention_causal": (
            lambda q, k, v: F.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=0.3
            ),
            ((1, 2, 4, 8),) * 3,
        ),
        "attention_grouped": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            ((1, 4, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8)),
        ),
        "attention_mask": (
            lambda q, k, v: F.scaled_dot_product_attention(
                q, k, v, attn_mask=torch.tensor([[True, False, True, True]])
            ),
            ((1, 2, 4, 8),) * 3,
        ),
        "multihead": (_SelfAttention(), ((1, 4, 8),)),
    }


class _SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def windows() -> dict[str, Case]:
    return {
        "conv1d": (nn.Conv1d(4, 3, 3, padding=1, dilation=2), (VOLUME,)),
        "conv_same": (nn.Conv2d(4, 3, (4, 3), padding="same"), (IMAGE,)),
        "conv_valid": (
            nn.Conv2d(4, 3, 3, stride=(2, 1), padding="valid", bias=False),
            (IMAGE,),
        ),
        "conv_unbatched": (nn.Conv2d(4, 3, 3), ((4, 6, 8),)),
        "conv3d": (nn.Conv3d(2, 3, 2), ((1, 2, 3, 4, 5),)),
        "conv_groups": (nn.Conv2d(4, 8, 3, groups=2, padding=1), (IMAGE,)),
        "depthwise": (nn.Conv2d(4, 8, 3, groups=4, padding=1), (IMAGE,)),
        "conv_transpose": (
            nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1),
            (IMAGE,),
        ),
        "conv_transpose1d": (
            nn.ConvTranspose1d(4, 2, 4, stride=2, groups=2),
            (VOLUME,),
        ),
        "batch_norm": (_trained_norm(), (IMAGE,)),
        "max_pool": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), (IMAGE,)),
        "max_pool1d": (lambda x: F.max_pool1d(x, 2), (VOLUME,)),
        "avg_pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGE,)),
        "avg_pool_ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (IMAGE,)),
        "avg_pool_inside": (
            lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            (IMAGE,),
        ),
        "avg_pool1d": (lambda x: F.avg_pool1d(x, 3), (VOLUME,)),
        "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), (IMAGE,)),
        "adaptive_global": (lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE,)),
        "adaptive_max": (lambda x: F.adaptive_max_pool2d(x, 1), (IMAGE,)),
        "adaptive1d": (lambda x: F.adaptive_avg_pool1d(x, 3), (VOLUME,)),
        "nearest": (lambda x: F.interpolate(x, scale_factor=2), (IMAGE,)),
        "nearest_size": (lambda x: F.interpolate(x, size=(5, 11)), (IMAGE,)),
        "bilinear": (
            lambda x: F.interpolate(x, scale_factor=2.5, mode="bilinear"),
            (IMAGE,),
        ),
        "bilinear_size": (
            lambda x: F.interpolate(x, size=(9, 5), mode="bilinear"),
            (IMAGE,),
        ),
        "bilinear_corners": (
            lambda x: F.interpolate(
                x, size=(9, 5), mode="bilinear", align_corners=True
            ),
            (IMAGE,),
        ),
        "bicubic": (
            lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
            (IMAGE,),
        ),
        "linear1d": (
            lambda x: F.interpolate(x, scale_factor=2, mode="linear"),
            (VOLUME,),
        ),
    }


def _trained_norm() -> nn.Module:
    norm = nn.BatchNorm2d(4)
    norm.running_mean = torch.tensor([0.1, -0.2, 0.3, 0.0])
    norm.running_var = torch.tensor([0.5, 1.5, 2.0, 1.0])
    return norm


def recurrent() -> dict[str, Case]:
    sequence = (1, 4, 5)
    return {
        "lstm": (_Recurrent(nn.LSTM(5, 6, 2, batch_first=True)), (sequence,)),
        "lstm_two_ways": (_Recurrent(nn.LSTM(5, 3, bidirectional=True)), (sequence,)),
        "lstm_no_bias": (_Recurrent(nn.LSTM(5, 3, bias=False)), (sequence,)),
        "gru": (
            _Recurrent(nn.GRU(5, 6, 2, bidirectional=True, batch_first=True)),
            (sequence,),
        ),
        "rnn": (_Recurrent(nn.RNN(5, 6, batch_first=True)), (sequence,)),
        "rnn_relu": (_Recurrent(nn.RNN(5, 6, nonlinearity="relu")), (sequence,)),
        "lstm_cell": (_Cell(nn.LSTMCell(5, 6)), ((1, 5),)),
        "gru_cell": (_Cell(nn.GRUCell(5, 6)), ((1, 5),)),
    }


class _Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layer(x)
        return (y, *state) if isinstance(state, tuple) else (y, state)


class _Cell(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y[0] + y[1] if isinstance(y, tuple) else y


class AsModule(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def operator_cases() -> dict[str, tuple[nn.Module, tuple[tuple[int, ...], ...]]]:
    """Return a module and the shapes of its inputs for each case."""
    torch.manual_seed(0)
    elementwise = (unary(), unary_of_positive_numbers(), binary(), other_elementwise())
    tables = (
        *elementwise,
        movement(),
        reductions(),
        products(),
        windows(),
        recurrent(),
    )
    cases = {name: case for table in tables for name, case in table.items()}
    return {
        name: ((f if isinstance(f, nn.Module) else AsModule(f)).eval(), shapes)
        for name, (f, shapes) in cases.items()
    }
