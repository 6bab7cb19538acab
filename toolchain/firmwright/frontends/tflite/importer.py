"""Conversion of a `RawModel` into an `IRModule`.

`subgraph_importer.py` imports single subgraphs, the modules of `operators/` single
nodes. All unsupported items are reported at once.
"""

import hashlib
from dataclasses import replace

from firmwright.base.errors import UnsupportedError, UsageError
from firmwright.frontends.tflite.complex_numbers import lower_complex_numbers
from firmwright.frontends.tflite.decoded_model import RawModel, RawSubgraph
from firmwright.frontends.tflite.fold_list_updates import merge_list_updates
from firmwright.frontends.tflite.grouped_convolutions import (
    split_grouped_convolutions,
)
from firmwright.frontends.tflite.import_context import ImportSession
from firmwright.frontends.tflite.rewrites import function_rewrites
from firmwright.frontends.tflite.signature_names import name_by_signatures
from firmwright.frontends.tflite.signed_tensors import make_signed
from firmwright.frontends.tflite.subgraph_importer import SubgraphImporter
from firmwright.frontends.tflite.tensor_lists import lower_tensor_lists
from firmwright.frontends.tflite.volume_convolutions import move_channels_to_front
from firmwright.frontends.tflite.widen_constants import widen_constants
from firmwright.ir.graph.op_call import CustomOpPredicate, accept_no_custom_op
from firmwright.ir.module import IRModule
from firmwright.ir.settings import ModelOrigin
from firmwright.ops.opdef import OpTable


def import_model(
    raw: RawModel,
    name: str,
    data: bytes,
    ops: OpTable,
    signature: str = "",
    is_claimed: CustomOpPredicate = accept_no_custom_op,
) -> IRModule:
    """Return the module of `raw`'s first subgraph, or of the subgraph of `signature`.

    `is_claimed` selects operators imported as `custom`, `data` is the file. Raises
    UnsupportedError with every unsupported item, UsageError for an unknown signature.
    """
    raw = lower_tensor_lists(name_by_signatures(raw))
    graphs: list[RawSubgraph] = []
    for graph in raw.subgraphs:
        graph = split_grouped_convolutions(make_signed(widen_constants(graph)))
        graph = lower_complex_numbers(merge_list_updates(graph))
        graphs.append(move_channels_to_front(graph))
    raw = replace(raw, subgraphs=tuple(graphs))
    session = ImportSession(raw, ops, is_claimed)
    first = _entry(raw, signature)
    function = SubgraphImporter(session, first).run("main")
    for rewrite in function_rewrites():
        function = rewrite(function, session)
    session.check(raw, chosen=bool(signature))
    if session.items:
        raise UnsupportedError(session.ordered_items(), where=raw.file)
    origin = ModelOrigin(hashlib.sha256(data).hexdigest(), first)
    functions = {"main": function, **session.functions}
    return IRModule(
        name, functions, session.constants, entry_name="main", origin=origin
    )


def _entry(raw: RawModel, signature: str) -> int:
    if not signature:
        return 0
    signatures = {item.key: item.subgraph for item in raw.signatures}
    if signature not in signatures:
        what = f"the model has no signature {signature!r}."
        hint = "the file's name alone."
        if signatures:
            hint = f"one of {', '.join(signatures)}."
        raise UsageError(what, where=raw.file, hint=hint)
    return signatures[signature]
