"""No store before a predicated store is lost, which gcc 12.2 takes for a whole one.

tests/unit/codegen/test_assembly_of_all_kernels.py finds the macro at each such store.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.option_combinations import Combination
from tests.fuzz.test_option_combinations import differing, random_model, run_image


@pytest.mark.qemu
def test_a_border_that_is_filled_before_a_predicated_store_stays() -> None:
    """The padding of ten bytes of a row band, whose first three are stored again."""
    model = random_model(2801, "uint8")
    assert model is not None
    outputs = run_image(
        [model], Combination("mps3-an547", "gcc", 1, False, {"optimize": "ram"})
    )
    assert differing([model], outputs) == []
    assert all(np.size(value) for value in outputs[0][0].values())
