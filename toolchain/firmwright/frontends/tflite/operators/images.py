"""Blocks of pixels and resized images."""

from collections.abc import Mapping

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.node_context import (
    ImportContext,
    Importer,
    bool_option,
    constant_ints,
    copy_importer,
    input_rank,
    plain_importer,
)
from firmwright.ir.graph.attributes.movement import (
    BatchSpaceAttrs,
    DepthSpaceAttrs,
    ResizeAttrs,
)


def _block_attrs(context: ImportContext) -> DepthSpaceAttrs:
    block = context.node.options["block_size"]
    if input_rank(context) != 4 or not isinstance(block, int) or block < 1:
        raise NotSupportedError(
            f"blocks of size {block} in {input_rank(context)} dimensions"
        )
    return DepthSpaceAttrs(block=block)


def _space_attrs(context: ImportContext) -> BatchSpaceAttrs:
    block = constant_ints(context, 1, "blocks or margins")
    margins = constant_ints(context, 2, "blocks or margins")
    rank = input_rank(context)
    if not 1 <= len(block) < rank or len(margins) != 2 * len(block):
        raise NotSupportedError(f"{len(block)} block sizes for {rank} dimensions")
    if any(size < 1 for size in block) or any(size < 0 for size in margins):
        raise NotSupportedError(f"blocks {list(block)} with margins {list(margins)}")
    return BatchSpaceAttrs(block=block, margins=margins)


def _resize_attrs(context: ImportContext) -> ResizeAttrs:
    if input_rank(context) != 4:
        raise NotSupportedError(f"an image of {input_rank(context)} dimensions")
    size = constant_ints(context, 1, "sizes")
    if len(size) != 2:
        raise NotSupportedError(f"{len(size)} sizes, expected height and width")
    return ResizeAttrs(
        size=(size[0], size[1]),
        align_corners=bool_option(context, "align_corners"),
        half_pixel_centers=bool_option(context, "half_pixel_centers"),
    )


IMPORTERS: Mapping[str, Importer] = {
    "BATCH_TO_SPACE_ND": copy_importer("batch_to_space_nd", 3, _space_attrs),
    "DEPTH_TO_SPACE": copy_importer("depth_to_space", 1, _block_attrs),
    "RESIZE_BILINEAR": plain_importer("resize_bilinear", 2, _resize_attrs, (0,)),
    "RESIZE_NEAREST_NEIGHBOR": copy_importer("resize_nearest", 2, _resize_attrs),
    "SPACE_TO_BATCH_ND": copy_importer("space_to_batch_nd", 3, _space_attrs),
    "SPACE_TO_DEPTH": copy_importer("space_to_depth", 1, _block_attrs),
}
