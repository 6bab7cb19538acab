"""CMSIS-NN, Arm's library of kernels for Cortex-M, as the backend `cmsis-nn`."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="cmsis-nn",
    command_line=(__name__,),
    code_options=("cmsis-nn",),
    passed_variables=("CMSIS_NN_PATH",),
)
