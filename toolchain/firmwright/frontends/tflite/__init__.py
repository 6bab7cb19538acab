"""The TFLite container: `read_tflite` turns the bytes of a .tflite file into a `RawModel`.

`read_c_array` finds such a file in C source text, `preprocess_tflite` completes it.
"""

from firmwright.frontends.tflite.c_array import is_c_source, read_c_array
from firmwright.frontends.tflite.preprocess import preprocess_tflite
from firmwright.frontends.tflite.reader import read_tflite

__all__ = ["is_c_source", "preprocess_tflite", "read_c_array", "read_tflite"]
