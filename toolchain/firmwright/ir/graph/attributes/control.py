"""Attributes of control flow and of custom operators."""

from dataclasses import dataclass

from firmwright.ir.graph.attributes.base import OpAttrs


@dataclass(frozen=True, slots=True, kw_only=True)
class IfAttrs(OpAttrs):
    then: str
    """Function that runs if the condition is true."""
    else_: str
    """Function that runs if it is false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhileAttrs(OpAttrs):
    cond: str
    """Function that gives the condition."""
    body: str
    """Function that runs while the condition is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomAttrs(OpAttrs):
    """An operator of another project, as the model file describes it."""

    domain: str
    """ONNX domain; empty for TFLite."""
    name: str
    """Name of the operator."""
    data: str
    """Options in hexadecimal digits: their bytes (TFLite), or the attributes as JSON
    (ONNX).
    """
