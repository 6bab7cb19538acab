"""Ensembles of decision trees of ONNX-ML: forests and boosted trees."""

from firmwright.base.extensions import Extension

EXTENSION = Extension(
    name="tree-ensemble",
    attributes={f"{__name__}.attributes.TreeEnsembleAttrs": "tree_ensemble"},
    operators=(f"{__name__}.operator",),
    onnx_importers=(f"{__name__}.onnx_importers",),
    schedules=(
        f"{__name__}.node_table",
        f"{__name__}.pair_walk",
        f"{__name__}.scores",
        f"{__name__}.code_schedule",
    ),
)
