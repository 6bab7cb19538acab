"""Features of sensors' samples, defined once for training and for the firmware.

from firmwright.sensors import (
    Biquads, SensorChain, Statistic, Statistics, StreamWindow
)

chain = SensorChain(
    channels=3,
    samples=32,
    steps=(Biquads(sos), StreamWindow(128), Statistics([Statistic.RMS])),
)
rows = chain.compute(recordings)        # float32 [..., runs, 1, 3], to train on
model = chain.before(network)           # takes the samples of a run
"""

from firmwright.sensors.chain import SensorChain
from firmwright.sensors.filters import Biquads, Decimate, Fir, Start
from firmwright.sensors.steps import Center, Join, Magnitude, Normalize, StreamWindow
from firmwright.sensors.windows import Spectrum, Statistic, Statistics

__all__ = [
    "Biquads",
    "Center",
    "Decimate",
    "Fir",
    "Join",
    "Magnitude",
    "Normalize",
    "SensorChain",
    "Spectrum",
    "Start",
    "Statistic",
    "Statistics",
    "StreamWindow",
]
