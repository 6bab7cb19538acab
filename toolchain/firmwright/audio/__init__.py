"""Audio features, defined once for training and for the firmware.

from firmwright.audio import Features

features = Features(channels=40)
rows = features.compute(samples)        # int8 [clips, hops, 40], to train on
model = features.before(network)        # takes the samples of a hop
"""

from firmwright.audio.features import Features
from firmwright.audio.settings import FrameWindow, GainControl, NoiseReduction

__all__ = ["Features", "FrameWindow", "GainControl", "NoiseReduction"]
