"""Arm's NPU Ethos-U55 and U65: backends that use Vela, and models compiled by it."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="ethos-u",
    attributes={f"{__name__}.attributes.EthosUAttrs": "ethos_u"},
    operators=(f"{__name__}.operator",),
    tflite_importers=(f"{__name__}.importers",),
    tflite_rewrites=(f"{__name__}.vela_output",),
    command_line=(__name__,),
    passed_variables=("ETHOS_U_DRIVER_PATH",),
    code_options=("ethos-u-driver",),
)
