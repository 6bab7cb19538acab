"""A backend for CFU-Playground's kws_micro_accel, and a network verified on it.

python kws_cfu.py kws.tflite

The CFU multiplies and adds bytes, and requantizes as TFLite's reference kernels do, for
the zero points and shifts of one keyword spotting network; other layers stay on the
core. On this computer its Verilated module executes the instructions.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import firmwright as fw
from firmwright.base.dtypes import INT8, INT32
from firmwright.base.quant import Rounding
from firmwright.ir.graph.attributes.layers import WindowAttrs
from firmwright.ir.graph.patterns import constant, op, wildcard
from firmwright.ops import conv2d
from firmwright.ops.requantize import per_tensor_quant
from firmwright.targets.backend import Backend, lowers
from firmwright.targets.target_kind import TargetAttribute

HERE = Path(__file__).resolve().parent
OBJECT = HERE / "verilated_cfu.o"
INPUT_ZERO_POINTS = {-128: 0, 83: 1}
"""The zero points that the CFU subtracts, and its bit for them."""
SHIFTS = range(-9, -4)


WEIGHTED = (wildcard(), constant(), constant())


class KwsCfu(Backend):
    """CFU-Playground's kws_micro_accel: a custom function unit of a RISC-V core."""

    name = "kws-cfu"
    attrs: Mapping[str, TargetAttribute] = {
        "verilated": TargetAttribute(True, "the Verilated module executes calls")
    }

    def can_compute(self, match):
        (call,) = match.ops
        x, w, y = call.input(0), call.input(1), call.output
        if {x.dtype, w.dtype, y.dtype} != {INT8}:
            return False
        step = conv2d.requantization_of(call)
        channels = y.shape[3] if call.op == "depthwise_conv2d" else w.shape[3]
        return (
            step.rounding is Rounding.TWICE
            and (step.zero_point, step.clamp_min, step.clamp_max) == (-128, -128, 127)
            and all(shift in SHIFTS for shift in step.shifts)
            and per_tensor_quant(x).zero_point in INPUT_ZERO_POINTS
            and call.attributes(WindowAttrs).dilation == (1, 1)
            and (x.shape[0], x.shape[3]) == (1, channels)
        )

    @lowers(op("conv2d", *WEIGHTED), takes=can_compute)
    def conv(self, kernel):
        call = kernel.call("conv2d")
        self.run(kernel, call, call.constant_array(1), channel_step=0)

    @lowers(op("depthwise_conv2d", *WEIGHTED), takes=can_compute)
    def depthwise(self, kernel):
        call = kernel.call("depthwise_conv2d")
        filters = call.constant_array(1).transpose(3, 1, 2, 0)
        self.run(kernel, call, filters, channel_step=1)

    def run(self, kernel, call, filters, channel_step):
        """Emit the call of the C function for filters of the shape [o, h, w, depth]."""
        attrs, step = call.attributes(WindowAttrs), conv2d.requantization_of(call)
        factors = np.array([step.multipliers, step.shifts], np.int32)
        multipliers, shifts = np.broadcast_to(factors, (2, len(filters)))
        kernel.extern(
            "kws_cfu_conv",
            [
                kernel.inputs[0],
                kernel.constant("filters", np.ascontiguousarray(filters), INT8),
                kernel.constant("bias", conv2d.bias_of(call, "int32"), INT32),
                kernel.constant("multipliers", multipliers, INT32),
                kernel.constant("shifts", shifts, INT32),
                kernel.outputs[0],
                *call.input(0).shape[1:],
                *call.output.shape[1:],
                *filters.shape[1:],
                channel_step,
                *attrs.stride,
                attrs.padding[0],
                attrs.padding[2],
                INPUT_ZERO_POINTS[per_tensor_quant(call.input(0)).zero_point],
            ],
        )

    def c_files(self, target, symbols):
        names = ["kws_cfu.h", "kws_cfu.c"]
        if target.attr("verilated"):
            names.append(OBJECT)
        return {Path(name).name: (HERE / name).read_bytes() for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a .tflite file")
    parser.add_argument("--samples", type=int, default=5)
    args = parser.parse_args()
    fw.register_backend(KwsCfu)
    compiled = fw.compile(fw.load(args.model), target="kws-cfu")
    result = fw.verify(compiled, samples=args.samples)
    operators = compiled.summary.operators
    on_cfu = [row for row in operators if row.schedule == KwsCfu.name]
    print(f"{len(on_cfu)} of {len(operators)} operators run on the CFU")
    print(f"{args.samples} samples: {'bit-exact' if result.exact else 'they differ'}")


if __name__ == "__main__":
    main()
