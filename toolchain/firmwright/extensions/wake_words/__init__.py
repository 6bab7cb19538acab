"""Wake words: microWakeWord's models and TFLM's front end as one ESPHome component."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="wake-words",
    command_line=(__name__,),
    export_commands=(f"{__name__}.commands",),
)
