"""A backend for int8 convolutions by a C function, in which tests plant defects."""

from importlib.resources import files

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.attributes.layers import Conv2DAttrs
from firmwright.ir.graph.patterns import constant, op, wildcard
from firmwright.ops import conv2d
from firmwright.targets.backend import Backend, PatternEntry


class Convolver(Backend):
    name = "convolver"
    doc = "int8 convolutions"

    def patterns(self):
        conv = op("conv2d", wildcard(), constant(), constant(), dilation=(1, 1))
        return [PatternEntry("conv", conv, self.takes)]

    def takes(self, match):
        call = match.call("conv2d")
        return call.input(0).dtype == INT8 and call.input(1).dtype == INT8

    def generate(self, kernel):
        call = kernel.call("conv2d")
        attrs, step = call.attributes(Conv2DAttrs), conv2d.requantization_of(call)
        channels = call.output.shape[3]
        multipliers = np.broadcast_to(np.int32(step.multipliers), channels)
        shifts = np.broadcast_to(np.int32(step.shifts), channels)
        constants = (
            kernel.constant("weights", call.constant(1).array(), INT8),
            kernel.constant("bias", conv2d.bias_of(call, "int32"), INT32),
            kernel.constant("multipliers", multipliers, INT32),
            kernel.constant("shifts", shifts, INT32),
        )
        numbers = (
            *call.input(0).shape,
            *call.output.shape[1:],
            *call.input(1).shape[1:3],
            *attrs.stride,
            *attrs.padding[::2],
            call.input(0).quantization.zero_point,
            step.zero_point,
            step.clamp_min,
            step.clamp_max,
        )
        x, y = kernel.inputs[0], kernel.outputs[0]
        kernel.extern("convolver_run", [x, *constants, y, *numbers])

    def c_files(self, target, symbols):
        return {"convolver.c": (files(__package__) / "convolver.c").read_bytes()}

    def cost(self, match):
        return match.ops[-1].output.elements

    def rejections(self, function, module, target):
        return {}
