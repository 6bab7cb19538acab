/* SPDX-License-Identifier: Apache-2.0 */
/* npu_pool.c: pooling; see npu.h. */
#include "npu.h"

#define POOL_MAX 0u
#define POOL_AVERAGE 1u
#define POOL_REDUCE_SUM 2u

struct pool {
    struct npu_axis vertical;
    struct npu_axis horizontal;
    struct npu_map ifm;
    struct npu_output output;
    bool is_padded;
};

/* The factor 1 / count, as precise as 32 bits allow. */
static struct npu_scale reciprocal(int32_t count)
{
    uint8_t log2 = 0;
    while (1 << log2 < count) {
        log2++;
    }
    uint64_t scale = (UINT64_C(1) << (31 + log2)) + (UINT64_C(1) << log2);
    return (struct npu_scale){(uint32_t)(scale / (uint64_t)count), (uint8_t)(31 + log2)};
}

/* Sum or maximum of a window, without elements outside of the input. */
static int64_t reduce_window(const struct pool *pool, bool is_max, int32_t y, int32_t x,
                             int32_t channel, int32_t *count)
{
    int64_t result = 0;
    ptrdiff_t offset = npu_channel(&pool->ifm, channel);
    *count = 0;
    for (int32_t ky = 0; ky < pool->vertical.taps; ky++) {
        int32_t row = npu_tap(&pool->vertical, y, ky);
        for (int32_t kx = 0; kx < pool->horizontal.taps && row >= 0; kx++) {
            int32_t column = npu_tap(&pool->horizontal, x, kx);
            if (column >= 0) {
                int64_t value = npu_load(&pool->ifm, npu_pixel(&pool->ifm, row, column) + offset);
                bool is_first = *count == 0;
                result = !is_max ? result + value : is_first || value > result ? value : result;
                (*count)++;
            }
        }
    }
    return result;
}

static int64_t reduce_channels(const struct pool *pool, int32_t y, int32_t x)
{
    int64_t sum = 0;
    const uint8_t *pixel = npu_pixel(&pool->ifm, y, x);
    for (int32_t channel = 0; channel < pool->ifm.depth; channel++) {
        sum += npu_load(&pool->ifm, pixel + npu_channel(&pool->ifm, channel));
    }
    return sum;
}

/* One element of the output, before its zero point. */
static int64_t compute(const struct pool *pool, unsigned mode, struct npu_scale scale, int32_t y,
                       int32_t x, int32_t channel)
{
    int32_t count;
    if (mode == POOL_REDUCE_SUM) {
        int64_t sum = reduce_channels(pool, y, x);
        return npu_rescale(sum, scale, pool->output.rounding, 0);
    }
    int64_t value = reduce_window(pool, mode == POOL_MAX, y, x, channel, &count);
    if (mode == POOL_AVERAGE && pool->is_padded && count > 0) {
        value = npu_rescale(value, reciprocal(count), pool->output.rounding, 0);
    }
    return npu_rescale(value, scale, pool->output.rounding, 0);
}

static bool run(struct npu *npu, const struct pool *pool, unsigned mode)
{
    const uint16_t *set = npu->parameters;
    const struct npu_map *ofm = &pool->output.map;
    for (int32_t channel = 0; channel < ofm->depth; channel++) {
        int64_t bias = 0;
        ptrdiff_t offset = npu_channel(ofm, channel);
        struct npu_scale scale = {1, 0};
        if (pool->output.has_global_scale) {
            scale = pool->output.scale;
            scale.scale = pool->ifm.size == 4 ? 1 : scale.scale;
        } else if (mode == POOL_AVERAGE && !pool->is_padded &&
                   !npu_channel_scale(npu, channel, &scale, &bias)) {
            return false;
        }
        for (int32_t y = 0; y <= set[NPU_SET_OFM_HEIGHT_M1]; y++) {
            for (int32_t x = 0; x <= set[NPU_SET_OFM_WIDTH_M1]; x++) {
                int64_t value = compute(pool, mode, scale, y, x, channel);
                npu_finish(&pool->output, npu_pixel(ofm, y, x) + offset, value);
            }
        }
    }
    return true;
}

bool npu_pool(struct npu *npu, unsigned mode)
{
    const uint16_t *set = npu->parameters;
    struct pool pool = {
        .is_padded = (set[NPU_SET_IFM_PAD_TOP] | set[NPU_SET_IFM_PAD_LEFT] |
                      set[NPU_SET_IFM_PAD_BOTTOM] | set[NPU_SET_IFM_PAD_RIGHT]) != 0,
    };
    int32_t ifm_depth = set[NPU_SET_IFM_DEPTH_M1] + 1;
    int32_t ofm_depth = set[NPU_SET_OFM_DEPTH_M1] + 1;
    if (mode > POOL_REDUCE_SUM) {
        return npu_fail_number(npu, "unknown pooling mode", mode);
    }
    if (ofm_depth != (mode == POOL_REDUCE_SUM ? 1 : ifm_depth)) {
        return npu_fail(npu, "IFM and OFM differ in depth");
    }
    if (!npu_open_window(npu, &pool.vertical, &pool.horizontal) ||
        !npu_open_map(npu, NPU_IFM, npu_axis_size(&pool.vertical), npu_axis_size(&pool.horizontal),
                      ifm_depth, &pool.ifm) ||
        !npu_open_output(npu, &pool.output)) {
        return false;
    }
    if (mode == POOL_REDUCE_SUM &&
        (pool.vertical.taps != 1 || pool.horizontal.taps != 1 || pool.is_padded ||
         pool.vertical.stride != 1 || pool.horizontal.stride != 1 || pool.vertical.upscale != 0)) {
        return npu_fail(npu, "a sum of channels with a kernel");
    }
    return run(npu, &pool, mode);
}
