/* SPDX-License-Identifier: Apache-2.0 */
/* npu_stream.c: commands and DMA; see npu.h. */
#include "npu.h"

#include <string.h>

static const struct npu_variant variants[] = {
    {0, 5, 1, 4, 16, 0}, {0, 6, 1, 8, 16, 0}, {0, 7, 1, 8, 24, 1},
    {0, 8, 1, 8, 48, 1}, {1, 8, 1, 8, 48, 1}, {1, 9, 2, 8, 48, 1},
};

const struct npu_variant *npu_find_variant(uint32_t config)
{
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        if (variants[i].product == config >> 28 && variants[i].macs_log2 == (config & 15u)) {
            return &variants[i];
        }
    }
    return NULL;
}

/* ---- DMA ------------------------------------------------------------------------------------- */

#define DMA_INTERNAL 0x100u /* in a DMA region: the shared buffer */
#define DMA_STRIDE_MODE(region) (((region) >> 9) & 3u)

static bool copy_to_lut(struct npu *npu, const uint8_t *source, uint64_t start, uint64_t size)
{
    uint64_t first = npu->variant.shram_kib * 1024u - NPU_LUT_BYTES;
    if (start < first || start - first > NPU_LUT_BYTES || size > NPU_LUT_BYTES - (start - first)) {
        return npu_fail_number(npu, "destination outside of the lookup tables, at byte", start);
    }
    memcpy(&npu->lut[start - first], source, (size_t)size);
    for (uint64_t at = start - first; at < start - first + size; at += NPU_LUT_SLOT) {
        npu->lut_slots |= (uint8_t)(1u << (at / NPU_LUT_SLOT));
    }
    return true;
}

/* Rows are contiguous in the source. In the destination a gap follows each row, and each plane. */
static bool copy_row(struct npu *npu, uint64_t length, uint32_t row, uint64_t distance)
{
    unsigned from = npu->parameters[NPU_SET_DMA0_SRC_REGION];
    unsigned to = npu->parameters[NPU_SET_DMA0_DST_REGION];
    uint64_t start = npu_address(npu, NPU_SET_DMA0_SRC) + row * length;
    uint64_t end = npu_address(npu, NPU_SET_DMA0_DST) + distance;
    const uint8_t *source = npu_bytes(npu, "source", from & 7u, start, length);
    if (source == NULL) {
        return false;
    }
    if ((to & DMA_INTERNAL) != 0) {
        return copy_to_lut(npu, source, end, length);
    }
    uint8_t *target = npu_bytes(npu, "destination", to & 7u, end, length);
    if (target != NULL) {
        memmove(target, source, (size_t)length);
    }
    return target != NULL;
}

static bool dma(struct npu *npu)
{
    unsigned from = npu->parameters[NPU_SET_DMA0_SRC_REGION];
    unsigned to = npu->parameters[NPU_SET_DMA0_DST_REGION];
    unsigned mode = DMA_STRIDE_MODE(to);
    uint64_t length = npu_address(npu, NPU_SET_DMA0_LEN);
    if ((from & DMA_INTERNAL) != 0 || DMA_STRIDE_MODE(from) != 0) {
        return npu_fail(npu, "source in the shared buffer or with strides");
    }
    if (mode > 2 || (mode > 0 && (npu->variant.product == 0 || (to & DMA_INTERNAL) != 0))) {
        return npu_fail(npu, "destination with strides");
    }
    if (length == 0) {
        return npu_fail(npu, "no bytes to copy");
    }
    uint32_t rows = mode > 0 ? npu->parameters[NPU_SET_DMA0_SIZE0] : 1;
    uint32_t planes = mode > 1 ? npu->parameters[NPU_SET_DMA0_SIZE1] : 1;
    uint64_t row_step = length + (uint64_t)npu_stride(npu, NPU_SET_DMA0_SKIP0);
    uint64_t plane_step = length * rows + (uint64_t)npu_stride(npu, NPU_SET_DMA0_SKIP1);
    for (uint32_t i = 0; i < rows * planes; i++) {
        if (!copy_row(npu, length, i, i / rows * plane_step + i % rows * row_step)) {
            return false;
        }
    }
    return true;
}

/* ---- Execution ------------------------------------------------------------------------------- */

/* Accumulators overwrite lookup tables that have no memory of their own. */
static void forget_luts(struct npu *npu)
{
    if (!npu->variant.has_lut_banks && (npu->parameters[NPU_SET_ACTIVATION] & 31u) < 16u) {
        npu->lut_slots = 0;
    }
}

static bool operate(struct npu *npu, unsigned code, unsigned parameter)
{
    switch (code) {
    case NPU_OP_IRQ:
    case NPU_OP_DMA_WAIT:
    case NPU_OP_KERNEL_WAIT:
    case NPU_OP_PMU_MASK:
        return true;
    case NPU_OP_DMA_START:
        return dma(npu);
    default:
        break;
    }
    forget_luts(npu);
    bool is_parallel = npu->parameters[NPU_SET_PARALLEL_MODE] == 1;
    npu->cores = is_parallel ? npu->variant.cores : 1;
    switch (code) {
    case NPU_OP_CONV:
        return npu_convolution(npu, false);
    case NPU_OP_DEPTHWISE:
        return npu_convolution(npu, true);
    case NPU_OP_POOL:
        return npu_pool(npu, parameter);
    default:
        return npu_elementwise(npu, parameter);
    }
}

bool npu_run(struct npu *npu, const uint32_t *stream, uint32_t words)
{
    for (uint32_t at = 0; at < words; at++) {
        unsigned code = stream[at] & 0x3ffu;
        uint16_t parameter = (uint16_t)(stream[at] >> 16);
        npu->position = 4u * at;
        npu->command = stream[at];
        if (npu_command_name(stream[at]) == NULL) {
            return npu_fail(npu, "unknown command");
        }
        if ((stream[at] & 0xc000u) != 0) {
            at++;
            if (at == words) {
                return npu_fail(npu, "the stream ends before its payload");
            }
            npu->payloads[code] = (struct npu_payload){stream[at], parameter};
        } else if (code >= NPU_FIRST_PARAMETER) {
            npu->parameters[code] = parameter;
        } else if (code == NPU_OP_STOP) {
            return true;
        } else if (!operate(npu, code, parameter)) {
            return false;
        }
    }
    return npu_fail(npu, "the stream ends without NPU_OP_STOP");
}
