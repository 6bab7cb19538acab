"""Thresholds, budgets and search limits of kernel selection.

Percentages are relative to the fastest alternative, unless a constant names another
reference.
"""

from collections.abc import Mapping

from firmwright.ir.settings import Minimize

# ---- time ----------------------------------------------------------------------------

PROGRAM_PERCENT_MAX: Mapping[Minimize, int] = {
    Minimize.BALANCED: 105,
    Minimize.RAM: 130,
}
"""Maximum time of the program with the least memory, by goal.

The reference is at least the time of the fastest program without row streaming, because
row-streamed programs may be faster at the expense of the flash budget.
"""
SIZE_PERCENT_MAX = 127
"""Maximum time of the goal `size`; shared code with parameters takes a little more."""
NEAR_PERCENT_MAX = 104
"""Maximum time of a call's candidate that the goal `balanced` considers."""
SMALL_PERCENT_MAX = 108
"""The same for a candidate with small constants, such as weights in four bits: ..."""
SMALL_FLASH_PERCENT = 60
"""... at most this many percent of the bytes of the fastest candidate."""
SHARED_TIME_PERMILLE = 1010
"""Maximum time, in thousandths, of a program whose kernels share more code."""
WORTH_TIMES = 4
"""A saving of flash that is worth this multiple of the lost time permits more: ..."""
CANDIDATE_PERCENT_MAX = 300
"""... the maximum time of a candidate in the search, unless nothing else fits."""
VARIANT_PERCENT_MAX = 110
"""Maximum time of a candidate that replaces a choice to suit adjacent calls."""
UNLIMITED_PERCENT = 1_000_000
"""No limit on a candidate's time."""

# ---- flash ---------------------------------------------------------------------------

DEFAULT_FLASH_PERCENT = 135
"""Default flash budget, in percent of the constants in the model file."""
EXPENSIVE_TIMES = 2
"""A candidate is expensive if its constants exceed this multiple of the smallest ..."""
EXPENSIVE_BYTES = 2048
"""... and exceed them by more than this number of bytes."""
FLASH_SLACK_BYTES = 32
"""Bytes by which a call may exceed its share of the default budget."""
CALL_CODE_BYTES = 20
"""Code bytes of one kernel call in the AOT main, ..."""
ARGUMENT_CODE_BYTES = 4
"""... of each number or address that it passes to code that other kernels share, ..."""
MAIN_CODE_BYTES = 200
"""... and of everything else but kernels."""
SHARED_PERCENT_MAX = 10
"""Maximum uses of differing numbers, in percent of the instructions of a call."""
CODE_MARGIN_PERCENT = 104
"""Bytes of kernels in a flash budget, in percent of the predicted ones."""
KNAPSACK_STATES_MAX = 2048
"""Number of different total sizes that the knapsack distinguishes."""

# ---- row streaming -------------------------------------------------------------------

STREAMED_BYTES_MIN = 12 * 1024
"""Minimum workspace at which `balanced` looks for calls to stream by rows, ..."""
STREAMED_NEED_PERCENT = 45
"""... minimum need of one of these calls, in percent of the highest, ..."""
STREAMED_TIME_PERCENT = 102
"""... and maximum time of the program with these calls, ..."""
STREAMED_SMALL_PERCENT: Mapping[int, int] = {55: 103}
"""... more by its workspace in percent of that without them, ..."""
STREAMED_VECTORS_PERCENT: Mapping[int, int] = {52: 118, 75: 107}
"""... and still more on a core with vectors."""

BAND_ROWS = (1, 2, 4)
"""Numbers of rows per band to try: more take more memory and less overhead."""
SEGMENT_MARGIN_CALLS = 4
"""Maximum number of calls of a segment before, and after, those that need most."""
SEGMENT_CALLS_MAX = 24
"""Maximum number of calls of a segment; the segments grow with its square."""
MOVE_INSTRUCTIONS_PERCENT = 70
"""Instructions per 100 copied bytes: a load and a store per word, and the loop."""
CALL_INSTRUCTIONS = 12
"""Instructions of a row-kernel call: arguments, frame, test of the stage's turn."""

# ---- search limits -------------------------------------------------------------------

PRICE_CORRECTIONS_MAX = 4
"""Rounds in which memory plans correct the estimated bytes of regions."""
TRIAL_PLANS_MAX = 24
"""Maximum number of memory plans in one refinement of choices."""
ORDER_STATES_MAX = 50_000
"""Maximum number of states of the exact search for a call order: about three seconds.

Irregular graphs with more than about fifty calls may need more.
"""
BEAM_WIDTH = 32
"""Number of partial orders that the beam search for a call order keeps."""
BEAM_MOVES_MAX = 100_000
"""Moves after which the beam search keeps one order; many parallel calls reach it."""
