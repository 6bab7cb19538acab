from __future__ import annotations

from collections.abc import Callable

from firmwright.usmp.greedy import greedy_by_size
from firmwright.usmp.hill_climb import hill_climb


def test_swaps_reach_the_bound_where_the_first_order_does_not(chain: Callable) -> None:
    problem = chain([27648, 18432, 18432, 36864, 9216, 18432, 18432, 18432, 4608])
    assert greedy_by_size(*problem).workspace_bytes > 55296
    assert hill_climb(*problem).workspace_bytes == 55296
