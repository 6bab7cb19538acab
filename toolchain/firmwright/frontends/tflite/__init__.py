"""The TFLite container: `read_tflite` turns the bytes of a .tflite file into a `RawModel`."""

from firmwright.frontends.tflite.reader import read_tflite

__all__ = ["read_tflite"]
