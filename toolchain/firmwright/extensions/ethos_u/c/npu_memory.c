/* SPDX-License-Identifier: Apache-2.0 */
/* npu_memory.c: regions, feature maps and kernel windows; see npu.h. */
#include "npu.h"

#include <string.h>

#define BRICK 16       /* channels that are contiguous in the format NHCWB16 */
#define KERNEL_MAX 256 /* rows and columns */

uint8_t *npu_bytes(struct npu *npu, const char *subject, unsigned region, uint64_t start,
                   uint64_t size)
{
    const struct npu_region *memory = &npu->regions[region];
    if (memory->base == NULL || start > memory->size || size > memory->size - start) {
        (void)npu_fail_range(npu, subject, region, (int64_t)start, (int64_t)(start + size));
        return NULL;
    }
    return memory->base + start;
}

uint64_t npu_address(const struct npu *npu, unsigned command)
{
    const struct npu_payload *payload = &npu->payloads[command];
    uint64_t high = npu->variant.product == 0 ? 0 : payload->parameter & 0xffu;
    return high << 32 | payload->value;
}

int64_t npu_stride(const struct npu *npu, unsigned command)
{
    uint64_t sign = npu->variant.product == 0 ? UINT64_C(1) << 31 : UINT64_C(1) << 39;
    return (int64_t)(npu_address(npu, command) ^ sign) - (int64_t)sign;
}

/* ---- Feature maps ---------------------------------------------------------------------------- */

static const char *role_name(enum npu_role role)
{
    return role == NPU_OFM ? "OFM" : role == NPU_IFM ? "IFM" : "IFM2";
}

static bool read_precision(struct npu *npu, enum npu_role role, struct npu_map *map)
{
    bool is_output = role == NPU_OFM;
    unsigned code =
        npu->parameters[is_output ? NPU_SET_OFM_PRECISION : NPU_SET_IFM_PRECISION + (unsigned)role];
    uint16_t zero_point = npu->parameters[is_output ? NPU_SET_OFM_ZERO_POINT
                                                    : NPU_SET_IFM_ZERO_POINT + (unsigned)role];
    unsigned log2 = (is_output ? code >> 1 : code >> 2) & 3u;
    unsigned format = code >> 6 & 3u;
    if (log2 > 2 || format > 1) {
        return npu_fail_number(npu, "unknown precision or format", code);
    }
    map->size = (uint8_t)(1u << log2);
    map->is_signed = (code & 1u) != 0;
    map->zero_point = map->is_signed ? (int16_t)zero_point : (int32_t)zero_point;
    map->has_bricks = format == 1;
    return true;
}

static bool read_strides(struct npu *npu, enum npu_role role, struct npu_map *map)
{
    int64_t y = npu_stride(npu, NPU_SET_IFM_STRIDE_Y + (unsigned)role);
    int64_t x = BRICK * map->size;
    int64_t brick = BRICK * map->size;
    int64_t unit = map->size;
    if (map->has_bricks) {
        brick = npu_stride(npu, NPU_SET_IFM_STRIDE_C + (unsigned)role);
        unit = BRICK;
    } else {
        x = npu_stride(npu, NPU_SET_IFM_STRIDE_X + (unsigned)role);
    }
    if (y % unit != 0 || x % unit != 0 || brick % unit != 0) {
        return npu_fail_number(npu, "strides are not multiples of", (uint64_t)unit);
    }
    map->stride_y = (ptrdiff_t)y;
    map->stride_x = (ptrdiff_t)x;
    map->stride_brick = (ptrdiff_t)brick;
    return y == map->stride_y && x == map->stride_x && brick == map->stride_brick
               ? true
               : npu_fail(npu, "strides exceed the memory");
}

/* Sets tile `index` after a check that `height` x `width` positions from its start are in range. */
static bool open_tile(struct npu *npu, enum npu_role role, struct npu_map *map, unsigned index,
                      int32_t height, int32_t width)
{
    if (height <= 0 || width <= 0) {
        return true; /* not in use */
    }
    unsigned region = npu->parameters[NPU_SET_IFM_REGION + (unsigned)role] & 7u;
    int64_t base = (int64_t)npu_address(npu, NPU_SET_IFM_BASE0 + (unsigned)role + index);
    int32_t channels = map->depth < BRICK ? map->depth : BRICK;
    const int64_t reach[3] = {
        (int64_t)(height - 1) * map->stride_y,
        (int64_t)(width - 1) * map->stride_x,
        (int64_t)((map->depth - 1) / BRICK) * map->stride_brick,
    };
    int64_t first = base;
    int64_t end = base + (int64_t)channels * map->size;
    for (int i = 0; i < 3; i++) {
        first += reach[i] < 0 ? reach[i] : 0;
        end += reach[i] > 0 ? reach[i] : 0;
    }
    if (!map->has_bricks && map->depth > BRICK) {
        end -= (BRICK - 1 - (map->depth - 1) % BRICK) * map->size;
    }
    if (first < 0 || (uint64_t)end > npu->regions[region].size) {
        return npu_fail_range(npu, role_name(role), region, first, end);
    }
    if (base % (map->has_bricks ? BRICK : map->size) != 0) {
        return npu_fail_number(npu, "a feature map is not aligned, at byte", (uint64_t)base);
    }
    map->tile[index] = npu->regions[region].base + base;
    return true;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

bool npu_open_map(struct npu *npu, enum npu_role role, int32_t height, int32_t width, int32_t depth,
                  struct npu_map *map)
{
    const uint16_t *parameters = &npu->parameters[(unsigned)role];
    *map = (struct npu_map){
        .depth = depth,
        .height0 = parameters[NPU_SET_IFM_HEIGHT0_M1] + 1,
        .height1 = parameters[NPU_SET_IFM_HEIGHT1_M1] + 1,
        .width0 = parameters[NPU_SET_IFM_WIDTH0_M1] + 1,
    };
    int32_t left = smaller(width, map->width0);
    int32_t right = width - map->width0;
    return read_precision(npu, role, map) && read_strides(npu, role, map) &&
           open_tile(npu, role, map, 0, smaller(height, map->height0), left) &&
           open_tile(npu, role, map, 1, smaller(height, map->height1), right) &&
           open_tile(npu, role, map, 2, height - map->height0, left) &&
           open_tile(npu, role, map, 3, height - map->height1, right);
}

uint8_t *npu_pixel(const struct npu_map *map, int32_t y, int32_t x)
{
    unsigned tile = 0;
    int32_t rows = map->height0;
    if (x >= map->width0) {
        x -= map->width0;
        rows = map->height1;
        tile = 1;
    }
    if (y >= rows) {
        y -= rows;
        tile += 2;
    }
    return map->tile[tile] + y * map->stride_y + x * map->stride_x;
}

ptrdiff_t npu_channel(const struct npu_map *map, int32_t channel)
{
    return (channel / BRICK) * map->stride_brick + (channel % BRICK) * map->size;
}

int32_t npu_load(const struct npu_map *map, const uint8_t *at)
{
    int16_t half;
    int32_t word;
    switch (map->size) {
    case 1:
        return (map->is_signed ? (int8_t)*at : (int32_t)*at) - map->zero_point;
    case 2:
        memcpy(&half, at, sizeof half);
        return (map->is_signed ? half : (int32_t)(uint16_t)half) - map->zero_point;
    default:
        memcpy(&word, at, sizeof word);
        return word;
    }
}

void npu_store(const struct npu_map *map, uint8_t *at, int32_t value)
{
    int16_t half = (int16_t)value;
    switch (map->size) {
    case 1:
        *at = (uint8_t)value;
        break;
    case 2:
        memcpy(at, &half, sizeof half);
        break;
    default:
        memcpy(at, &value, sizeof value);
        break;
    }
}

/* ---- Kernel windows -------------------------------------------------------------------------- */

static bool open_axis(struct npu *npu, struct npu_axis *axis, unsigned size_m1, unsigned outputs_m1,
                      unsigned pad_after)
{
    axis->upscale = (uint8_t)(npu->parameters[NPU_SET_IFM_UPSCALE] & 3u);
    axis->taps = (int32_t)size_m1 / axis->dilation + 1;
    axis->limit = (int32_t)(outputs_m1 * (unsigned)axis->stride + size_m1) + 1 - axis->pad -
                  (int32_t)pad_after;
    if ((int32_t)size_m1 % axis->dilation != 0 || axis->limit <= 0 || axis->upscale > 2 ||
        size_m1 >= KERNEL_MAX) {
        return npu_fail(npu, "kernel, stride, padding and OFM are inconsistent");
    }
    return true;
}

bool npu_open_window(struct npu *npu, struct npu_axis *vertical, struct npu_axis *horizontal)
{
    const uint16_t *set = npu->parameters;
    unsigned code = set[NPU_SET_KERNEL_STRIDE];
    *vertical = (struct npu_axis){
        .stride = (int32_t)((code >> 1 & 1u) + (code >> 9 & 7u) * 2u) + 1,
        .dilation = (int32_t)(code >> 4 & 1u) + 1,
        .pad = set[NPU_SET_IFM_PAD_TOP],
    };
    *horizontal = (struct npu_axis){
        .stride = (int32_t)((code & 1u) + (code >> 6 & 7u) * 2u) + 1,
        .dilation = (int32_t)(code >> 3 & 1u) + 1,
        .pad = set[NPU_SET_IFM_PAD_LEFT],
    };
    return open_axis(npu, vertical, set[NPU_SET_KERNEL_HEIGHT_M1], set[NPU_SET_OFM_HEIGHT_M1],
                     set[NPU_SET_IFM_PAD_BOTTOM]) &&
           open_axis(npu, horizontal, set[NPU_SET_KERNEL_WIDTH_M1], set[NPU_SET_OFM_WIDTH_M1],
                     set[NPU_SET_IFM_PAD_RIGHT]);
}

int32_t npu_axis_size(const struct npu_axis *axis)
{
    return axis->upscale == 0 ? axis->limit : (axis->limit + 1) / 2;
}

int32_t npu_tap(const struct npu_axis *axis, int32_t output, int32_t tap)
{
    int32_t at = output * axis->stride + tap * axis->dilation - axis->pad;
    if (at < 0 || at >= axis->limit) {
        return -1;
    }
    if (axis->upscale == 0) {
        return at;
    }
    return axis->upscale == 2 && at % 2 != 0 ? -1 : at / 2;
}
