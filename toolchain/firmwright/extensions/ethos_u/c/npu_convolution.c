/* SPDX-License-Identifier: Apache-2.0 */
/* npu_convolution.c: convolution and depthwise convolution; see npu.h.
 *
 * Weights arrive in the order in which the NPU uses them: for each block of output channels the
 * blocks of input channels, in these the parts of the kernel (of at most 8 x 8 taps), in these the
 * micro-blocks of channels. So each weight is applied to all positions of a tile as it is decoded.
 * With two cores, the first has the even output channels and the second the odd ones.
 */
#include "npu.h"

#include <string.h>

#define IFM_MICRO_BLOCK 8 /* input channels of a micro-block */

static int64_t accumulators[NPU_ACCUMULATORS];

struct convolution {
    struct npu *npu;
    struct npu_axis vertical;
    struct npu_axis horizontal;
    struct npu_map ifm;
    struct npu_output output;
    struct npu_weights weights[NPU_CORES];
    struct npu_weights block_start[NPU_CORES]; /* each tile decodes its block's weights again */
    bool is_depthwise;
    bool is_part_kernel_first;
    int32_t ifm_depth;
    int32_t ofm_depth;
    int32_t tile_y, tile_x, tile_height, tile_width;
};

/* Channels of one core in the current block. */
struct block {
    struct npu_weights *weights;
    int64_t *accumulators;
    int32_t core;
    int32_t first; /* in the core's own numbering */
    int32_t depth;
};

/* A part of the kernel and of the input channels. */
struct part {
    int32_t y, x, height, width;
    int32_t channel, depth;
};

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t round_up(int32_t value, int32_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static int32_t channels_of_core(const struct convolution *conv, int32_t core)
{
    int32_t cores = conv->npu->cores;
    return (conv->ofm_depth + cores - 1 - core) / cores;
}

static int32_t ofm_channel(const struct convolution *conv, const struct block *block, int32_t index)
{
    return (block->first + index) * conv->npu->cores + block->core;
}

/* ---- Weights --------------------------------------------------------------------------------- */

/* Applies a weight to all positions of the tile. */
static void accumulate(const struct convolution *conv, int64_t *sums, int32_t weight, int32_t ky,
                       int32_t kx, int32_t channel)
{
    ptrdiff_t offset = npu_channel(&conv->ifm, channel);
    for (int32_t row = 0; row < conv->tile_height; row++) {
        int32_t y = npu_tap(&conv->vertical, conv->tile_y + row, ky);
        for (int32_t column = 0; column < conv->tile_width && y >= 0; column++) {
            int32_t x = npu_tap(&conv->horizontal, conv->tile_x + column, kx);
            if (x >= 0) {
                const uint8_t *at = npu_pixel(&conv->ifm, y, x) + offset;
                sums[row * conv->tile_width + column] += (int64_t)weight * npu_load(&conv->ifm, at);
            }
        }
    }
}

/* One tap of the kernel and a micro-block of output and of input channels. */
static void apply_tap(const struct convolution *conv, const struct block *block,
                      const struct part *part, int32_t tap, int32_t ofm, int32_t ifm)
{
    int32_t ofm_end = ofm + conv->npu->variant.ofm_block;
    int32_t ifm_end = ifm + (conv->is_depthwise ? 1 : IFM_MICRO_BLOCK);
    int32_t ky = tap / part->width;
    int32_t kx = part->x + tap % part->width;
    for (int32_t o = ofm; o < ofm_end; o++) {
        for (int32_t i = ifm; i < ifm_end; i++) {
            int32_t weight = npu_weights_next(block->weights);
            if (weight != 0 && ky < part->height && o < block->depth && i < conv->ifm_depth) {
                int32_t channel = conv->is_depthwise ? ofm_channel(conv, block, o) : i;
                accumulate(conv, &block->accumulators[o * conv->tile_height * conv->tile_width],
                           weight, part->y + ky, kx, channel);
            }
        }
    }
}

/* All weights of a part of the kernel. Depth first: for each tap all input channels of the block.
 * Part kernel first: for each micro-block of input channels all taps. */
static void apply_part(const struct convolution *conv, const struct block *block,
                       const struct part *part)
{
    int32_t step = IFM_MICRO_BLOCK;
    int32_t unit = conv->is_depthwise            ? 4
                   : !conv->is_part_kernel_first ? 1
                   : conv->ifm.size == 1         ? 4
                                                 : 2;
    int32_t taps = round_up(part->height * part->width, unit);
    int32_t outer = conv->is_part_kernel_first ? part->depth : 1;
    int32_t inner = conv->is_part_kernel_first ? 1 : part->depth;
    for (int32_t first = 0; first < outer; first += step) {
        for (int32_t ofm = 0; ofm < block->depth; ofm += conv->npu->variant.ofm_block) {
            for (int32_t tap = 0; tap < taps && block->weights->fault == NULL; tap++) {
                for (int32_t ifm = first; ifm < first + inner; ifm += step) {
                    apply_tap(conv, block, part, tap, ofm, part->channel + ifm);
                }
            }
        }
    }
}

/* All weights of a block of output channels. */
static void apply_block(const struct convolution *conv, const struct block *block)
{
    int32_t height = 8 / conv->vertical.dilation;
    int32_t width = 8 / conv->horizontal.dilation;
    int32_t depth = conv->is_depthwise                                 ? 1
                    : conv->is_part_kernel_first || conv->ifm.size > 1 ? 16
                                                                       : 32;
    for (int32_t channel = 0; channel < conv->ifm_depth; channel += depth) {
        for (int32_t y = 0; y < conv->vertical.taps; y += height) {
            for (int32_t x = 0; x < conv->horizontal.taps; x += width) {
                struct part part = {
                    .y = y,
                    .x = x,
                    .height = smaller(height, conv->vertical.taps - y),
                    .width = smaller(width, conv->horizontal.taps - x),
                    .channel = channel,
                    .depth = depth,
                };
                if (conv->is_part_kernel_first) {
                    part.depth = smaller(depth, conv->ifm_depth - channel);
                }
                apply_part(conv, block, &part);
            }
        }
    }
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

static bool store_block(struct convolution *conv, const struct block *block)
{
    struct npu_output *output = &conv->output;
    const int64_t *sum = block->accumulators;
    for (int32_t o = 0; o < block->depth; o++) {
        struct npu_scale scale;
        int64_t bias;
        int32_t channel = ofm_channel(conv, block, o);
        ptrdiff_t offset = npu_channel(&output->map, channel);
        if (!npu_channel_scale(conv->npu, channel, &scale, &bias)) {
            return false;
        }
        if (output->has_global_scale) {
            scale = output->scale;
        }
        for (int32_t y = conv->tile_y; y < conv->tile_y + conv->tile_height; y++) {
            for (int32_t x = conv->tile_x; x < conv->tile_x + conv->tile_width; x++) {
                int64_t value = npu_rescale(*sum++ + bias, scale, output->rounding, 0);
                npu_finish(output, npu_pixel(&output->map, y, x) + offset, value);
            }
        }
    }
    return true;
}

static bool run_tile(struct convolution *conv, struct block *blocks)
{
    for (int32_t core = 0; core < conv->npu->cores; core++) {
        const struct block *block = &blocks[core];
        int32_t count = block->depth * conv->tile_height * conv->tile_width;
        for (int32_t i = 0; i < count; i++) {
            block->accumulators[i] = 0;
        }
        apply_block(conv, block);
        if (block->weights->fault != NULL) {
            return npu_fail(conv->npu, block->weights->fault);
        }
        if (!store_block(conv, block)) {
            return false;
        }
    }
    return true;
}

/* One block of output channels, tile by tile. */
static bool run_block(struct convolution *conv, struct block *blocks, int32_t height, int32_t width)
{
    int32_t places = NPU_ACCUMULATORS / conv->npu->cores / blocks[0].depth;
    int32_t columns = smaller(width, places);
    int32_t rows = smaller(height, places / columns);
    blocks[1].accumulators = &accumulators[NPU_ACCUMULATORS / 2];
    memcpy(conv->block_start, conv->weights, sizeof conv->weights);
    for (int32_t y = 0; y < height; y += rows) {
        for (int32_t x = 0; x < width; x += columns) {
            conv->tile_y = y;
            conv->tile_x = x;
            conv->tile_height = smaller(rows, height - y);
            conv->tile_width = smaller(columns, width - x);
            memcpy(conv->weights, conv->block_start, sizeof conv->weights);
            if (!run_tile(conv, blocks)) {
                return false;
            }
        }
    }
    return true;
}

static bool run_blocks(struct convolution *conv)
{
    const uint16_t *set = conv->npu->parameters;
    int32_t cores = conv->npu->cores;
    int32_t block_depth = set[NPU_SET_OFM_BLK_DEPTH_M1] + 1;
    struct block blocks[NPU_CORES] = {
        {.weights = &conv->weights[0], .accumulators = accumulators, .core = 0},
        {.weights = &conv->weights[1], .core = 1},
    };
    while (blocks[0].first < channels_of_core(conv, 0)) {
        for (int32_t core = 0; core < cores; core++) {
            int32_t depth = (block_depth + cores - 1 - core) / cores;
            blocks[core].depth = smaller(depth, channels_of_core(conv, core) - blocks[core].first);
        }
        if (!run_block(conv, blocks, set[NPU_SET_OFM_HEIGHT_M1] + 1,
                       set[NPU_SET_OFM_WIDTH_M1] + 1)) {
            return false;
        }
        for (int32_t core = 0; core < cores; core++) {
            blocks[core].first += blocks[core].depth;
        }
    }
    for (int32_t core = 0; core < cores; core++) {
        if (channels_of_core(conv, core) > 0 && !npu_weights_at_end(&conv->weights[core])) {
            return npu_fail(conv->npu, "the weight stream has more weights than the kernel");
        }
    }
    return true;
}

/* ---- The operation --------------------------------------------------------------------------- */

static bool open_weights(struct convolution *conv, int32_t core)
{
    struct npu *npu = conv->npu;
    unsigned base = core == 0 ? NPU_SET_WEIGHT_BASE : NPU_SET_WEIGHT1_BASE;
    unsigned length = core == 0 ? NPU_SET_WEIGHT_LENGTH : NPU_SET_WEIGHT1_LENGTH;
    uint32_t size = npu->payloads[length].value;
    const uint8_t *bytes = npu_bytes(npu, "weights", npu->parameters[NPU_SET_WEIGHT_REGION] & 7u,
                                     npu_address(npu, base), size);
    npu_weights_open(&conv->weights[core], bytes, size);
    return bytes != NULL;
}

bool npu_convolution(struct npu *npu, bool is_depthwise)
{
    static struct convolution conv; /* too large for the stack of a small core */
    const uint16_t *set = npu->parameters;
    int32_t ifm_depth = set[NPU_SET_IFM_DEPTH_M1] + 1;
    conv.npu = npu;
    conv.is_depthwise = is_depthwise;
    conv.ofm_depth = set[NPU_SET_OFM_DEPTH_M1] + 1;
    conv.ifm_depth = is_depthwise ? 1 : ifm_depth;
    conv.is_part_kernel_first = !is_depthwise && (set[NPU_SET_KERNEL_STRIDE] & 4u) != 0;
    if ((set[NPU_SET_KERNEL_STRIDE] & 32u) != 0 || set[NPU_SET_OFM_BLK_DEPTH_M1] > 127u) {
        return npu_fail(npu,
                        "decomposition of kernels into 4 x 4, or a block of over 128 channels");
    }
    if (is_depthwise && ifm_depth != conv.ofm_depth) {
        return npu_fail(npu, "IFM and OFM differ in depth");
    }
    if (!npu_open_window(npu, &conv.vertical, &conv.horizontal) ||
        !npu_open_map(npu, NPU_IFM, npu_axis_size(&conv.vertical), npu_axis_size(&conv.horizontal),
                      ifm_depth, &conv.ifm) ||
        !npu_open_output(npu, &conv.output)) {
        return false;
    }
    if (conv.ifm.size > 2) {
        return npu_fail(npu, "an IFM of 32 bits");
    }
    for (int32_t core = 0; core < npu->cores; core++) {
        if (channels_of_core(&conv, core) > 0 && !open_weights(&conv, core)) {
            return false;
        }
    }
    return run_blocks(&conv);
}
