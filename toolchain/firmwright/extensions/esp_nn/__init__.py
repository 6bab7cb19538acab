"""ESP-NN, Espressif's library of int8 kernels, as the backend `esp-nn`."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="esp-nn",
    command_line=(__name__,),
    code_options=("esp-nn",),
    passed_variables=("ESP_NN_PATH",),
)
