"""Rewrites of extensions: of a decoded file, and of the function imported from it."""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from firmwright.base.extensions import door_modules
from firmwright.frontends.tflite.decoded_model import RawModel
from firmwright.frontends.tflite.import_context import ImportSession
from firmwright.ir.graph.nodes import Function

ModelRewrite: TypeAlias = Callable[[RawModel], RawModel]
"""Changes a decoded file before it is verified; ModelError if the file is broken."""
FunctionRewrite: TypeAlias = Callable[[Function, ImportSession], Function]
"""Changes the entry function; other functions and constants are in the session."""


@cache
def model_rewrites() -> tuple[ModelRewrite, ...]:
    modules = door_modules(lambda extension: extension.tflite_rewrites)
    rewrites: list[ModelRewrite] = []
    for module in modules:
        rewrites += getattr(module, "MODEL_REWRITES", ())
    return tuple(rewrites)


@cache
def function_rewrites() -> tuple[FunctionRewrite, ...]:
    modules = door_modules(lambda extension: extension.tflite_rewrites)
    rewrites: list[FunctionRewrite] = []
    for module in modules:
        rewrites += getattr(module, "FUNCTION_REWRITES", ())
    return tuple(rewrites)
