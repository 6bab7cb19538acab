/* fuzz_ethos_u.c: fuzzes the model of the Ethos-U, under ASan and UBSan.
 *
 * An input is a payload of one or several operations from the grammar of command streams: feature
 * maps, windows, scales, tables and weights that fit together, of which some commands are replaced
 * by hostile values. Each region is an allocation of its own, so that ASan detects every access
 * outside of it. A job that fails names a reason.
 */
#include <stdlib.h>
#include <string.h>

#include "ethosu_driver.h"
#include "fuzz_choices.h"
#include "npu_commands.h"

#define REGIONS 4u
#define WORDS_MAX 4000u
#define HEADER_WORDS 8u
#define WEIGHT_BYTES 6000u
#define TABLE_BYTES 2048u /* of all lookup tables */
#define PAYLOAD 0x4000u

#define NPU_CODE(name, code) code,
static const uint16_t plain_commands[] = {NPU_COMMANDS(NPU_CODE)};
static const uint16_t payload_commands[] = {NPU_PAYLOAD_COMMANDS(NPU_CODE)};

static struct {
    uint32_t words[WORDS_MAX];
    uint32_t count;
    uint32_t product;
    uint32_t macs_log2;
    size_t sizes[8];
    uint64_t bases[8];
} fuzz;

static const uint32_t hostile[] = {
    0,      1,       2,          3,          7,          8,          15,     16,     17,
    31,     32,      33,         63,         64,         127,        128,    255,    256,
    1023,   1024,    1025,       4095,       4096,       6000,       0x7fff, 0x8000, 0xff80,
    0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff,
};

static uint32_t choose_hostile(void)
{
    return choose_number(4, hostile, sizeof hostile / sizeof hostile[0]);
}

/* ---- Commands ------------------------------------------------------------------------------ */

static void put(uint32_t word)
{
    if (fuzz.count < WORDS_MAX) {
        fuzz.words[fuzz.count++] = word;
    }
}

static void set(unsigned code, uint32_t parameter)
{
    put(code | (parameter & 0xffffu) << 16);
}

/* A payload; the parameter holds bits 32 to 39 of an address, or a shift. */
static void load(unsigned code, uint32_t value, uint32_t parameter)
{
    put(code | PAYLOAD | parameter << 16);
    put(value);
}

/* Replaces up to three commands by hostile ones before the operation. */
static void spoil(void)
{
    for (uint32_t i = choose_below(4); i > 0; i--) {
        uint32_t at = choose_byte();
        if ((at & 1u) != 0) {
            uint32_t count = sizeof plain_commands / sizeof plain_commands[0];
            uint16_t code = plain_commands[10u + at / 2u % (count - 10u)];
            set(code, choose_hostile());
        } else {
            uint32_t count = sizeof payload_commands / sizeof payload_commands[0];
            uint32_t value = choose_hostile();
            load(payload_commands[at / 2u % count], value, choose_below(4) == 0 ? 0xff : 0);
        }
    }
}

/* ---- Feature maps -------------------------------------------------------------------------- */

struct shape {
    uint32_t height, width, depth;
};

/* Sets a map at `role`, in one tile or in four, in the format NHWC or NHCWB16. */
static void set_map(unsigned role, struct shape shape, uint32_t log2, uint32_t is_signed)
{
    uint8_t how = choose_byte();
    uint32_t size = 1u << log2;
    uint32_t has_bricks = how & 1u;
    uint32_t x = has_bricks ? 16u * size : shape.depth * size;
    uint32_t y = x * shape.width;
    uint32_t bytes = has_bricks ? y * ((shape.depth + 15u) / 16u) : y * shape.height;
    uint32_t bits = role == 0x10 ? log2 << 1 : log2 << 2;
    unsigned precision = role == 0x10 ? NPU_SET_OFM_PRECISION : NPU_SET_IFM_PRECISION + role;
    unsigned zero = role == 0x10 ? NPU_SET_OFM_ZERO_POINT : NPU_SET_IFM_ZERO_POINT + role;
    uint32_t high = role == 0x10 ? (uint32_t)choose_below(3) << 14 | (how & 16u) << 4 : 0;
    y = has_bricks ? y * ((shape.depth + 15u) / 16u) : y;
    set(precision, is_signed | bits | has_bricks << 6 | high);
    set(zero, how & 32u ? 0 : choose_byte());
    set(NPU_SET_IFM_REGION + role, how & 64u ? choose_below(REGIONS) : 1u);
    load(NPU_SET_IFM_STRIDE_X + role, x, 0);
    load(NPU_SET_IFM_STRIDE_Y + role, y, 0);
    load(NPU_SET_IFM_STRIDE_C + role, x * shape.width, 0);
    uint32_t left = how & 2u ? 1u + choose_below(4) : shape.width;
    uint32_t top = how & 4u ? 1u + choose_below(4) : shape.height;
    set(NPU_SET_IFM_WIDTH0_M1 + role, left - 1u);
    set(NPU_SET_IFM_HEIGHT0_M1 + role, top - 1u);
    set(NPU_SET_IFM_HEIGHT1_M1 + role, how & 8u ? choose_below(4) : top - 1u);
    for (unsigned tile = 0; tile < 4; tile++) {
        uint32_t base = how & 128u ? choose_below(8) * 16u : 0;
        load(NPU_SET_IFM_BASE0 + role + tile, base + (tile == 3 ? bytes / 2u / 16u * 16u : 0), 0);
    }
}

static void set_output(struct shape shape)
{
    uint8_t how = choose_byte();
    uint32_t log2 = how & 3u ? 0 : choose_below(3);
    set(NPU_SET_OFM_HEIGHT_M1, shape.height - 1u);
    set(NPU_SET_OFM_WIDTH_M1, shape.width - 1u);
    set(NPU_SET_OFM_DEPTH_M1, shape.depth - 1u);
    set(NPU_SET_OFM_BLK_DEPTH_M1, how & 16u ? choose_below(64) : 15u);
    set_map(0x10, shape, log2, how >> 2 & 1u);
    load(NPU_SET_OFM_SCALE, how & 8u ? choose_hostile() : 1u << 30, choose_below(64));
    static const uint32_t functions[] = {0, 0, 0, 3, 4, 16, 17, 20, 23, 24};
    static const uint32_t clips[] = {0, 0, 2, 3, 5, 1};
    static const uint32_t limits[] = {0, 0x8000, 0xff80, 0x7f, 0xff, 0x7fff, 0xffff};
    uint32_t function = functions[choose_below(10)];
    set(NPU_SET_ACTIVATION, function | clips[choose_below(6)] << 12);
    set(NPU_SET_ACTIVATION_MIN, limits[choose_below(7)]);
    set(NPU_SET_ACTIVATION_MAX, limits[choose_below(7)]);
}

/* ---- Operations ---------------------------------------------------------------------------- */

/* The place of the lookup tables in the shared buffer. */
static uint32_t first_table(void)
{
    static const uint8_t kib[] = {16, 16, 24, 48, 48};
    return kib[fuzz.macs_log2 - 5u] * 1024u - TABLE_BYTES;
}

static void choose_transfer(void)
{
    uint8_t how = choose_byte();
    uint32_t tables = first_table();
    uint32_t is_table = (how & 1u) == 0;
    set(NPU_SET_DMA0_SRC_REGION, how >> 1 & 1u);
    set(NPU_SET_DMA0_DST_REGION, is_table ? 0x100u : 1u | (how >> 4 & 3u) << 9);
    load(NPU_SET_DMA0_SRC, choose_byte(), 0);
    load(NPU_SET_DMA0_DST, is_table ? tables + choose_below(8) * 256u : choose_byte(), 0);
    load(NPU_SET_DMA0_LEN, is_table ? 256u << (how >> 2 & 3u) : choose_byte(), 0);
    set(NPU_SET_DMA0_SIZE0, choose_below(4));
    set(NPU_SET_DMA0_SIZE1, choose_below(4));
    load(NPU_SET_DMA0_SKIP0, choose_below(32), 0);
    load(NPU_SET_DMA0_SKIP1, choose_below(32), 0);
    spoil();
    set(NPU_OP_DMA_START, 0);
}

/* Fills all lookup tables. */
static void load_tables(void)
{
    load(NPU_SET_DMA0_DST, first_table(), 0);
    load(NPU_SET_DMA0_LEN, TABLE_BYTES, 0);
    set(NPU_SET_DMA0_DST_REGION, 0x100u);
    set(NPU_OP_DMA_START, 0);
}

/* Sets window and input of a convolution or pooling for an output shape. */
static void set_window(struct shape out, uint32_t ifm_depth)
{
    uint8_t how = choose_byte();
    uint32_t kernel = 1u + (how & 3u);
    uint32_t stride = how >> 2 & 1u;
    uint32_t dilation = how >> 3 & 1u;
    uint32_t span = (kernel - 1u) * (dilation + 1u);
    uint32_t pad = how & 16u ? choose_below(3) : 0;
    uint32_t flags = choose_byte();
    pad = pad <= span / 2u ? pad : 0;
    set(NPU_SET_KERNEL_HEIGHT_M1, span);
    set(NPU_SET_KERNEL_WIDTH_M1, span);
    set(NPU_SET_KERNEL_STRIDE, stride * 3u | dilation * 24u | (flags & 1u) << 2);
    set(NPU_SET_IFM_PAD_TOP, pad);
    set(NPU_SET_IFM_PAD_LEFT, pad);
    set(NPU_SET_IFM_PAD_RIGHT, pad);
    set(NPU_SET_IFM_PAD_BOTTOM, pad);
    set(NPU_SET_IFM_UPSCALE, flags & 2u ? choose_below(3) : 0);
    set(NPU_SET_IFM_DEPTH_M1, ifm_depth - 1u);
    struct shape in = {
        .height = (out.height - 1u) * (stride + 1u) + span + 1u - 2u * pad,
        .width = (out.width - 1u) * (stride + 1u) + span + 1u - 2u * pad,
        .depth = ifm_depth,
    };
    set_map(0, in, flags & 4u ? choose_below(3) : 0, flags >> 3 & 1u);
}

static void set_weights(void)
{
    uint8_t how = choose_byte();
    uint32_t start = how & 1u ? choose_byte() : 0;
    uint32_t length = how & 2u ? choose_byte() * 16u : WEIGHT_BYTES - 1000u;
    set(NPU_SET_WEIGHT_REGION, 0);
    set(NPU_SET_SCALE_REGION, 0);
    set(NPU_SET_PARALLEL_MODE, how >> 2 & 1u);
    load(NPU_SET_WEIGHT_BASE, start, 0);
    load(NPU_SET_WEIGHT_LENGTH, length, 0);
    load(NPU_SET_WEIGHT1_BASE, 0, 0);
    load(NPU_SET_WEIGHT1_LENGTH, length, 0);
    load(NPU_SET_SCALE_BASE, choose_byte(), 0);
    load(NPU_SET_SCALE_LENGTH, how & 8u ? choose_byte() : 1000u, 0);
    load(NPU_SET_SCALE1_BASE, choose_byte(), 0);
    load(NPU_SET_SCALE1_LENGTH, how & 16u ? choose_byte() : 1000u, 0);
}

static struct shape choose_shape(void)
{
    return (struct shape){
        .height = 1u + choose_below(6),
        .width = 1u + choose_below(6),
        .depth = 1u + choose_below(choose_below(4) == 0 ? 40 : 6),
    };
}

static void choose_elementwise(void)
{
    struct shape shape = choose_shape();
    uint8_t how = choose_byte();
    uint32_t log2 = how & 3u ? 0 : choose_below(3);
    struct shape second = shape;
    static const uint32_t scalings[] = {0, 0x100, 0x200, 0x4000, 0x8100, 0x8200, 0xc000, 0x300};
    set_output(shape);
    set(NPU_SET_IFM_UPSCALE, 0);
    set_map(0, shape, log2, how >> 2 & 1u);
    set(NPU_SET_IFM_PRECISION, (how >> 2 & 1u) | log2 << 2 | scalings[choose_below(8)]);
    set_map(0x80, second, log2, how >> 2 & 1u);
    set(NPU_SET_IFM2_BROADCAST, how & 8u ? choose_byte() : 0);
    set(NPU_SET_IFM2_SCALAR, choose_hostile());
    load(NPU_SET_OPA_SCALE, choose_hostile(), choose_below(64));
    load(NPU_SET_OPB_SCALE, choose_hostile(), 0);
    spoil();
    set(NPU_OP_ELEMENTWISE, choose_below(11));
}

static void choose_operation(void)
{
    struct shape shape;
    uint32_t depth;
    switch (choose_below(6)) {
    case 0:
        choose_transfer();
        break;
    case 1:
        shape = choose_shape();
        depth = 1u + choose_below(choose_below(4) == 0 ? 40 : 6);
        set_output(shape);
        set_window(shape, depth);
        set_weights();
        spoil();
        set(NPU_OP_CONV, 0);
        break;
    case 2:
        shape = choose_shape();
        set_output(shape);
        set_window(shape, shape.depth);
        set_weights();
        spoil();
        set(NPU_OP_DEPTHWISE, 0);
        break;
    case 3:
        shape = choose_shape();
        depth = choose_below(4);
        shape.depth = depth == 2u ? 1u : shape.depth;
        set_output(shape);
        set_window(shape, depth == 2u ? 1u + choose_below(40) : shape.depth);
        set_weights();
        spoil();
        set(NPU_OP_POOL, depth);
        break;
    case 4:
        choose_elementwise();
        break;
    default: /* any command */
        put(choose_hostile());
        break;
    }
}

/* ---- Regions ------------------------------------------------------------------------------- */

static void put_bits(uint8_t *bytes, uint32_t *at, uint32_t value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, (*at)++) {
        bytes[*at / 8u] |= (uint8_t)((value >> i & 1u) << (*at % 8u));
    }
}

/* A slice header, and bytes that decode to weights or runs of zeros. */
static void make_weights(uint8_t *bytes, uint32_t size)
{
    uint8_t how = choose_byte();
    uint32_t at = 0;
    uint8_t first = choose_byte();
    uint8_t step = choose_byte();
    for (uint32_t i = 8; i < size; i++) {
        bytes[i] = (uint8_t)(first + i * step);
    }
    if (size < 8u || how >= 224u) {
        return;
    }
    put_bits(bytes, &at, how & 1u ? 6u : choose_below(8), 3);
    put_bits(bytes, &at, how & 2u ? 32767u : choose_byte(), 15);
    put_bits(bytes, &at, how & 4u ? 7u : choose_below(8), 3);
    put_bits(bytes, &at, how >> 3 & 1u, 1); /* truncated */
    put_bits(bytes, &at, (how & 16u) == 0, 1);
    put_bits(bytes, &at, choose_below(32), 5);
    put_bits(bytes, &at, how & 32u ? choose_below(32) : 0, 5);
    put_bits(bytes, &at, how & 64u ? choose_below(8) : 6u, 3);
}

static void make_regions(void)
{
    static const uint16_t sizes[] = {0, 1, 15, 16, 17, 64, 255, 1000, 1024, 1024, 1024, 1024};
    for (uint32_t i = 0; i < REGIONS; i++) {
        void *memory = NULL;
        fuzz.sizes[i] = i == 0 ? WEIGHT_BYTES : sizes[choose_below(12)];
        if (i == 3 && fuzz.sizes[i] == 0) { /* a region that the job does not have */
            fuzz.bases[i] = 0;
            continue;
        }
        if (posix_memalign(&memory, 16, fuzz.sizes[i] + (fuzz.sizes[i] == 0)) != 0) {
            abort();
        }
        memset(memory, choose_byte(), fuzz.sizes[i] + (fuzz.sizes[i] == 0));
        fuzz.bases[i] = (uintptr_t)memory;
    }
    uint8_t *weights = (uint8_t *)(uintptr_t)fuzz.bases[0];
    memset(weights, 0, WEIGHT_BYTES);
    make_weights(weights, WEIGHT_BYTES);
}

/* ---- Payloads ------------------------------------------------------------------------------ */

static void make_payload(void)
{
    uint8_t how = choose_byte();
    fuzz.count = HEADER_WORDS;
    if ((how & 16u) != 0) {
        load_tables();
    }
    for (uint32_t i = 1u + choose_below(6); i > 0; i--) {
        choose_operation();
    }
    if ((how & 15u) != 15u) {
        set(NPU_OP_STOP, 0);
    }
    uint32_t length = fuzz.count - HEADER_WORDS;
    const uint32_t header[HEADER_WORDS] = {
        0x31504f43, 1, fuzz.product << 28 | fuzz.macs_log2,   0x10060000, 5,
        5,          5, 2u | length >> 16 << 8 | length << 16,
    };
    memcpy(fuzz.words, header, sizeof header);
    if (how >= 240u) {
        fuzz.words[choose_below(HEADER_WORDS)] = choose_hostile();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t configs[] = {0x05, 0x06, 0x07, 0x08, 0x18, 0x19, 0x19, 0x19};
    begin_choices(data, size);
    uint8_t config = configs[choose_below(8)];
    fuzz.product = config >> 4;
    fuzz.macs_log2 = config & 15u;
    make_regions();
    make_payload();
    void *payload = NULL;
    size_t bytes = 4u * fuzz.count - choose_below(64) / 63u;
    if (posix_memalign(&payload, 16, bytes) != 0) {
        abort();
    }
    memcpy(payload, fuzz.words, bytes);
    struct ethosu_driver *driver = ethosu_reserve_driver();
    int result = ethosu_invoke(driver, payload, (int)bytes, fuzz.bases, fuzz.sizes, REGIONS);
    if ((result != 0) != (ethosu_model_error()[0] != 0)) {
        abort();
    }
    ethosu_release_driver(driver);
    free(payload);
    for (uint32_t i = 0; i < REGIONS; i++) {
        free((void *)(uintptr_t)fuzz.bases[i]);
    }
    return 0;
}
