"""Selection by the record of an earlier compilation: new weights, the same code."""

from firmwright.base.errors import MismatchError
from firmwright.choose.aot_main import build_main
from firmwright.choose.flash_budget import CandidatesPerCall
from firmwright.choose.row_streaming_loop import FusedSegment
from firmwright.choose.streaming_candidates import RowsOf, SegmentBuilder
from firmwright.ir.graph.nodes import Call
from firmwright.ir.module import IRModule
from firmwright.ir.program_record import ProgramRecord
from firmwright.ops.schedule import LoweringCandidate


def replay_selection(
    module: IRModule,
    candidates_per_call: CandidatesPerCall,
    rows_of: RowsOf,
    record: ProgramRecord,
) -> IRModule:
    """Return the module with the recorded kernels and segments.

    The candidates are those of the record. Raises MismatchError if a segment is
    impossible.
    """
    entry = module.entry_graph
    builder = SegmentBuilder(entry, rows_of)
    segments: list[FusedSegment] = []
    for recorded in record.segments:
        is_fed = module.io.stream_input_rows and recorded.first == 0
        end = min(recorded.end, len(entry.body))
        segment = builder.segment(recorded.first, end, recorded.band, feed=is_fed)
        if segment is None:
            what = (
                f"calls {recorded.first} to {recorded.end - 1} cannot be computed row "
                "by row any more, as in the compilation to update."
            )
            raise MismatchError(what, where=module.name, hint="update the code, too.")
        segments.append(segment)
    chosen: list[tuple[Call, LoweringCandidate | None]] = []
    for call, candidates in candidates_per_call:
        chosen.append((call, candidates[0] if candidates else None))
    return build_main(module, chosen, segments)
