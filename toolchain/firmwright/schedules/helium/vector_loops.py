"""The default loops of operators on vectors of Helium."""

from firmwright.kernels.mve_loops import HELIUM
from firmwright.schedules.vector_loops import vector_loop_schedules

SCHEDULES = tuple(vector_loop_schedules("helium", HELIUM))
