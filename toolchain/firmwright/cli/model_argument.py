"""The model that a verb reads, from the arguments."""

import argparse

from firmwright.frontends.onnx import ModelOverrides


def model_overrides(args: argparse.Namespace) -> ModelOverrides:
    return ModelOverrides(dict(args.input_shape), dict(args.fix_input))
