"""The integer models of MLPerf Tiny, which the fixture `model_path` finds."""

MODELS = (
    "kws_ref_model",
    "vww_96_int8",
    "pretrainedResnet_quant",
    "ad01_int8",
    "str_ww_ref_model",
)
FILES = tuple(f"{name}.tflite" for name in MODELS)
