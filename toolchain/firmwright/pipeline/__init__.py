"""The compilation pipeline from an imported model to a planned module and C sources.

Every step is a `Pass`. A module records the last pass in `attrs["stage"]`; compilation of a saved
module continues from there and yields the same bytes.
"""

from firmwright.pipeline.compilation import (
    Bundle,
    Compilation,
    PassObserver,
    bundle,
    compile_model,
    pareto_front,
)
from firmwright.pipeline.configuration import configure_module
from firmwright.pipeline.model_loading import (
    complete_model,
    load_module,
    load_module_bytes,
    source_digest,
)
from firmwright.pipeline.options import C_APIS, NUMERICS, OPTIMIZE_GOALS, Options
from firmwright.pipeline.pass_list import passes_for, remaining_passes
from firmwright.pipeline.selection_oracle import make_lowering

__all__ = [
    "C_APIS",
    "NUMERICS",
    "OPTIMIZE_GOALS",
    "Bundle",
    "Compilation",
    "Options",
    "PassObserver",
    "bundle",
    "compile_model",
    "complete_model",
    "configure_module",
    "load_module",
    "load_module_bytes",
    "make_lowering",
    "pareto_front",
    "passes_for",
    "remaining_passes",
    "source_digest",
]
