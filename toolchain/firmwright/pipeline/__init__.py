"""The compilation pipeline from an imported model to a planned module and C sources.

Every step is a `Pass`. `attrs["stage"]` records the last pass; compilation of a saved
module continues with the next one and yields the same bytes.

The names below are those that other packages use; each is imported with its module when
it is first used, since a verb that only reads a model needs none of the compiler.
"""

from typing import TYPE_CHECKING

from firmwright.base.package_modules import export_on_use

if TYPE_CHECKING:
    from firmwright.pipeline.compilation import Bundle as Bundle
    from firmwright.pipeline.compilation import Compilation as Compilation
    from firmwright.pipeline.compilation import LoweredProgram as LoweredProgram
    from firmwright.pipeline.compilation import bundle as bundle
    from firmwright.pipeline.compilation import compile_model as compile_model
    from firmwright.pipeline.compilation import emit_compilation as emit_compilation
    from firmwright.pipeline.compilation import lower_program as lower_program
    from firmwright.pipeline.configuration import configure_module as configure_module
    from firmwright.pipeline.model_loading import complete_model as complete_model
    from firmwright.pipeline.model_loading import load_module as load_module
    from firmwright.pipeline.model_loading import load_module_bytes as load_module_bytes
    from firmwright.pipeline.model_loading import (
        shapes_of_open_inputs as shapes_of_open_inputs,
    )
    from firmwright.pipeline.model_loading import source_digest as source_digest
    from firmwright.pipeline.model_loading import (
        with_declared_axis as with_declared_axis,
    )
    from firmwright.pipeline.options import C_APIS as C_APIS
    from firmwright.pipeline.options import NUMERICS as NUMERICS
    from firmwright.pipeline.options import OPTIMIZE_GOALS as OPTIMIZE_GOALS
    from firmwright.pipeline.options import Options as Options
    from firmwright.pipeline.pass_list import passes_for as passes_for
    from firmwright.pipeline.pass_list import remaining_passes as remaining_passes
    from firmwright.pipeline.resized_models import ResizedModel as ResizedModel
    from firmwright.pipeline.resized_models import with_axis_input as with_axis_input
    from firmwright.pipeline.selection_oracle import make_lowering as make_lowering

__getattr__ = export_on_use(
    __name__,
    {
        "compilation": [
            "Bundle",
            "Compilation",
            "LoweredProgram",
            "bundle",
            "compile_model",
            "emit_compilation",
            "lower_program",
        ],
        "configuration": ["configure_module"],
        "model_loading": [
            "complete_model",
            "load_module",
            "load_module_bytes",
            "shapes_of_open_inputs",
            "source_digest",
            "with_declared_axis",
        ],
        "options": ["C_APIS", "NUMERICS", "OPTIMIZE_GOALS", "Options"],
        "pass_list": ["passes_for", "remaining_passes"],
        "resized_models": ["ResizedModel", "with_axis_input"],
        "selection_oracle": ["make_lowering"],
    },
)
