/* SPDX-License-Identifier: Apache-2.0 */
/* npu_elementwise.c: elementwise operations; see npu.h. */
#include "npu.h"

enum mode { MUL, ADD, SUB, MIN, MAX, LRELU, ABS, CLZ, SHR, SHL };

#define BROADCAST_HEIGHT 1u
#define BROADCAST_WIDTH 2u
#define BROADCAST_DEPTH 4u
#define BROADCAST_REVERSED 0x40u /* IFM2 is the first operand */
#define BROADCAST_SCALAR 0x80u

/* Scaling of the operands of ADD and SUB. */
enum operand_scaling { BOTH_16_BIT, FIRST_32_BIT, SECOND_32_BIT };

struct elementwise {
    enum mode mode;
    struct npu_map ifm;
    struct npu_map ifm2;
    struct npu_output output;
    uint16_t broadcast;
    int32_t scalar;
    enum operand_scaling operand_scaling;
    enum npu_rounding operand_rounding;
    struct npu_scale first_scale;
    uint16_t second_scale;
};

static bool is_unary(enum mode mode)
{
    return mode == LRELU || mode == ABS || mode == CLZ;
}

/* ---- Arithmetic ------------------------------------------------------------------------------ */

/* The operand that is not scaled is shifted left, one bit less than the scaled one was. */
static int64_t add(const struct elementwise *op, int64_t a, int64_t b)
{
    int left = op->ifm.size == 1 ? 20 : 15;
    if (op->ifm.size < 4) {
        switch (op->operand_scaling) {
        case FIRST_32_BIT:
            a = npu_rescale(a, op->first_scale, op->operand_rounding, left);
            b *= INT64_C(1) << (left - 1);
            break;
        case SECOND_32_BIT:
            a *= INT64_C(1) << (left - 1);
            b = npu_rescale(b, op->first_scale, op->operand_rounding, left);
            break;
        default:
            a *= (int64_t)(op->first_scale.scale & 0xffffu);
            b *= op->second_scale;
            break;
        }
    }
    return op->mode == ADD ? a + b : a - b;
}

static int64_t leading_zeros(int64_t value)
{
    int64_t count = 0;
    while (count < 32 && ((uint32_t)value >> (31 - count) & 1u) == 0) {
        count++;
    }
    return count;
}

static int64_t shift_left(int64_t value, int64_t bits)
{
    return bits < 32 ? (int32_t)((uint32_t)value << bits) : 0;
}

/* One element of the output, before its zero point. */
static int64_t compute(const struct elementwise *op, int64_t a, int64_t b)
{
    const enum npu_rounding rounding = op->output.rounding;
    struct npu_scale scale = op->output.scale;
    scale.scale = op->ifm.size == 4 ? 1 : scale.scale; /* 32 bits are only shifted */
    switch (op->mode) {
    case MUL:
        return npu_rescale(a * b, scale, rounding, 0);
    case ADD:
    case SUB:
        return npu_rescale(add(op, a, b), scale, rounding, 0);
    case LRELU:
        return a < 0 ? npu_rescale(a, scale, rounding, 0) : a;
    case ABS:
        return npu_rescale(a < 0 ? -a : a, scale, rounding, 0);
    case MIN:
        return a < b ? a : b;
    case MAX:
        return a > b ? a : b;
    case CLZ:
        return leading_zeros(a);
    case SHR:
        return npu_rescale(a, (struct npu_scale){1, (uint8_t)(b & 63)}, rounding, 0);
    default:
        return shift_left(a, b & 63);
    }
}

/* ---- Operands -------------------------------------------------------------------------------- */

static int64_t load_second(const struct elementwise *op, int32_t y, int32_t x, int32_t channel)
{
    if ((op->broadcast & BROADCAST_SCALAR) != 0) {
        return (int64_t)op->scalar - op->ifm2.zero_point;
    }
    y = (op->broadcast & BROADCAST_HEIGHT) != 0 ? 0 : y;
    x = (op->broadcast & BROADCAST_WIDTH) != 0 ? 0 : x;
    channel = (op->broadcast & BROADCAST_DEPTH) != 0 ? 0 : channel;
    return npu_load(&op->ifm2, npu_pixel(&op->ifm2, y, x) + npu_channel(&op->ifm2, channel));
}

static void run(const struct elementwise *op, int32_t height, int32_t width)
{
    bool is_reversed = (op->broadcast & BROADCAST_REVERSED) != 0;
    for (int32_t y = 0; y < height; y++) {
        for (int32_t x = 0; x < width; x++) {
            const uint8_t *pixel = npu_pixel(&op->ifm, y, x);
            uint8_t *target = npu_pixel(&op->output.map, y, x);
            for (int32_t c = 0; c < op->output.map.depth; c++) {
                int64_t a = npu_load(&op->ifm, pixel + npu_channel(&op->ifm, c));
                int64_t b = is_unary(op->mode) ? 0 : load_second(op, y, x, c);
                int64_t value = is_reversed ? compute(op, b, a) : compute(op, a, b);
                npu_finish(&op->output, target + npu_channel(&op->output.map, c), value);
            }
        }
    }
}

static bool open_second(struct npu *npu, struct elementwise *op, int32_t height, int32_t width)
{
    op->broadcast = npu->parameters[NPU_SET_IFM2_BROADCAST];
    if ((op->broadcast & BROADCAST_SCALAR) != 0) {
        height = width = 0;
    }
    height = (op->broadcast & BROADCAST_HEIGHT) != 0 ? 1 : height;
    width = (op->broadcast & BROADCAST_WIDTH) != 0 ? 1 : width;
    int32_t depth = (op->broadcast & BROADCAST_DEPTH) != 0 ? 1 : op->output.map.depth;
    if (!npu_open_map(npu, NPU_IFM2, height, width, depth, &op->ifm2)) {
        return false;
    }
    uint16_t scalar = npu->parameters[NPU_SET_IFM2_SCALAR];
    op->scalar = op->ifm2.is_signed ? (int16_t)scalar : (int32_t)scalar;
    return op->ifm.size == op->ifm2.size || npu_fail(npu, "IFM and IFM2 differ in precision");
}

bool npu_elementwise(struct npu *npu, unsigned mode)
{
    const uint16_t *set = npu->parameters;
    const struct npu_payload *scale = &npu->payloads[NPU_SET_OPA_SCALE];
    unsigned precision = set[NPU_SET_IFM_PRECISION];
    int32_t height = set[NPU_SET_OFM_HEIGHT_M1] + 1;
    int32_t width = set[NPU_SET_OFM_WIDTH_M1] + 1;
    struct elementwise op = {
        .mode = (enum mode)mode,
        .operand_scaling = (enum operand_scaling)(precision >> 8 & 3u),
        .operand_rounding = (enum npu_rounding)(precision >> 14 & 3u),
        .first_scale = {scale->value, (uint8_t)(scale->parameter & 63u)},
        .second_scale = (uint16_t)npu->payloads[NPU_SET_OPB_SCALE].value,
    };
    if (mode > SHL || op.operand_scaling > SECOND_32_BIT ||
        op.operand_rounding > NPU_ROUND_NATURAL) {
        return npu_fail_number(npu, "unknown elementwise mode or scaling", mode);
    }
    if (set[NPU_SET_IFM_UPSCALE] != 0) {
        return npu_fail(npu, "an elementwise operation with upscaling");
    }
    if (!npu_open_output(npu, &op.output) ||
        !npu_open_map(npu, NPU_IFM, height, width, op.output.map.depth, &op.ifm) ||
        (!is_unary(op.mode) && !open_second(npu, &op, height, width))) {
        return false;
    }
    run(&op, height, width);
    return true;
}
