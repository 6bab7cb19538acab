"""The window of an image's convolution or pool, and attributes that contain it."""

from dataclasses import dataclass

from firmwright.ir.graph.attributes.layers import (
    Activation,
    AveragePoolAttrs,
    Conv2DAttrs,
    PoolAttrs,
)


@dataclass(frozen=True, slots=True)
class ImageWindow:
    """Where the windows are, as in `WindowAttrs`.

    `stride` and `dilation` are (down, right), `padding` is (top, bottom, left, right).
    """

    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]

    def conv2d_attrs(
        self, activation: Activation, *, unsigned: bool = False
    ) -> Conv2DAttrs:
        return Conv2DAttrs(
            stride=self.stride,
            dilation=self.dilation,
            padding=self.padding,
            activation=activation,
            unsigned=unsigned,
        )

    def pool_attrs(self, size: tuple[int, int], activation: Activation) -> PoolAttrs:
        return PoolAttrs(
            size=size,
            stride=self.stride,
            dilation=self.dilation,
            padding=self.padding,
            activation=activation,
        )

    def average_pool_attrs(
        self, size: tuple[int, int], activation: Activation, *, unsigned: bool = False
    ) -> AveragePoolAttrs:
        return AveragePoolAttrs(
            size=size,
            stride=self.stride,
            dilation=self.dilation,
            padding=self.padding,
            activation=activation,
            unsigned=unsigned,
        )
