"""The TFLite container: `read_tflite` turns a file's bytes into a `RawModel`.

`read_c_array` finds such a file in C source text, `preprocess_tflite` completes it.
Names are imported when they are first used, since those of the operators alone need no
reader.
"""

from typing import TYPE_CHECKING

from firmwright.base.package_modules import export_on_use

if TYPE_CHECKING:
    from firmwright.frontends.tflite.c_array import is_c_source as is_c_source
    from firmwright.frontends.tflite.c_array import read_c_array as read_c_array
    from firmwright.frontends.tflite.preprocess import open_inputs as open_inputs
    from firmwright.frontends.tflite.preprocess import (
        preprocess_tflite as preprocess_tflite,
    )
    from firmwright.frontends.tflite.reader import read_tflite as read_tflite
    from firmwright.frontends.tflite.signature_names import (
        names_in_file as names_in_file,
    )
    from firmwright.frontends.tflite.tensor_lists import (
        has_tensor_lists as has_tensor_lists,
    )

__getattr__ = export_on_use(
    __name__,
    {
        "c_array": ["is_c_source", "read_c_array"],
        "preprocess": ["open_inputs", "preprocess_tflite"],
        "reader": ["read_tflite"],
        "signature_names": ["names_in_file"],
        "tensor_lists": ["has_tensor_lists"],
    },
)
