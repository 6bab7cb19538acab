/* SPDX-License-Identifier: Apache-2.0 */
/* npu.h: a functional model of the NPUs Ethos-U55 and Ethos-U65.
 *
 * It executes a command stream on the core, with the NPU's results but not its timing: commands are
 * executed one after another, so waits and block dependencies have no effect. Every access is
 * checked against the memory regions, and the first command that is unknown, inconsistent or out of
 * range ends execution with a text that names it.
 *
 *   npu_stream.c       decodes commands; DMA
 *   npu_memory.c       regions, feature maps and their bounds
 *   npu_weights.c      decompresses weights
 *   npu_convolution.c  convolution and depthwise convolution, in the order of the weights
 *   npu_pool.c         pooling
 *   npu_elementwise.c  elementwise operations
 *   npu_output.c       scaling, rounding, activation and lookup tables
 */
#ifndef NPU_H
#define NPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu_commands.h"

/* Accumulators of a tile of the output, of 8 bytes each; at least 256. Fewer take more time. */
#ifndef NPU_ACCUMULATORS
#define NPU_ACCUMULATORS 4096
#endif

#define NPU_REGIONS 8
#define NPU_CORES 2
#define NPU_LUT_BYTES 2048 /* lookup tables, at the end of the shared buffer (SHRAM) */
#define NPU_LUT_SLOT 256
#define NPU_ERROR_BYTES 192

struct npu_region {
    uint8_t *base;
    uint64_t size;
};

/* The members of the family. */
struct npu_variant {
    uint8_t product;       /* 0: Ethos-U55, 1: Ethos-U65 */
    uint8_t macs_log2;     /* multiply-accumulates per cycle */
    uint8_t cores;         /* each decodes the weights of every other channel */
    uint8_t ofm_block;     /* output channels that a core computes at a time */
    uint8_t shram_kib;     /* shared buffer of a core */
    uint8_t has_lut_banks; /* lookup tables are not overwritten by accumulators */
};

struct npu_payload {
    uint32_t value;
    uint16_t parameter;
};

struct npu {
    struct npu_region regions[NPU_REGIONS];
    struct npu_variant variant;
    uint16_t parameters[NPU_COMMAND_COUNT];
    struct npu_payload payloads[NPU_PAYLOAD_COMMAND_COUNT];
    uint8_t lut[NPU_LUT_BYTES];
    int32_t cores;     /* in use: those with a weight stream of their own */
    uint8_t lut_slots; /* bit n: slot n holds a table */
    uint32_t position; /* of the current command, in bytes */
    uint32_t command;  /* its first word */
    char error[NPU_ERROR_BYTES];
};

/* ---- Command streams ------------------------------------------------------------------------- */

/* The variant of a configuration word (product in bits 28 to 31, log2 of the MACs in bits 0 to 3),
 * or null. */
const struct npu_variant *npu_find_variant(uint32_t config);

/* Executes `words` commands and payloads; the regions are set. False: `error` has the reason. */
bool npu_run(struct npu *npu, const uint32_t *stream, uint32_t words);

/* The name of the command in a first word, or null if there is none. */
const char *npu_command_name(uint32_t command);

/* Records an error of the current command, unless there is one already. Returns false. */
bool npu_fail(struct npu *npu, const char *subject);
bool npu_fail_number(struct npu *npu, const char *subject, uint64_t number);
bool npu_fail_range(struct npu *npu, const char *subject, unsigned region, int64_t first,
                    int64_t end);

/* Operations, one file each. */
bool npu_convolution(struct npu *npu, bool is_depthwise);
bool npu_pool(struct npu *npu, unsigned mode);
bool npu_elementwise(struct npu *npu, unsigned mode);

/* ---- Memory ---------------------------------------------------------------------------------- */

enum npu_role { NPU_OFM = 0x10, NPU_IFM = 0, NPU_IFM2 = 0x80 }; /* added to commands of the IFM */

/* A feature map in memory. Its upper left part is tile 0, the others follow to the right (1),
 * below (2) and on the diagonal (3). */
struct npu_map {
    uint8_t *tile[4];
    ptrdiff_t stride_y;
    ptrdiff_t stride_x;
    ptrdiff_t stride_brick; /* between 16 channels and the next 16 */
    int32_t depth;
    int32_t height0; /* of tile 0 */
    int32_t height1; /* of tile 1 */
    int32_t width0;  /* of tiles 0 and 2 */
    int32_t zero_point;
    uint8_t size; /* of an element: 1, 2 or 4 bytes */
    bool is_signed;
    bool has_bricks; /* the format NHCWB16 */
};

/* Bytes of a region, or null after an error. `subject` names the accessor. */
uint8_t *npu_bytes(struct npu *npu, const char *subject, unsigned region, uint64_t start,
                   uint64_t size);

/* The address or stride that a payload command set: 32 bits of Ethos-U55, 40 of Ethos-U65. */
uint64_t npu_address(const struct npu *npu, unsigned command);
int64_t npu_stride(const struct npu *npu, unsigned command);

/* Reads the map's registers and checks that `height` x `width` x `depth` elements are in range. */
bool npu_open_map(struct npu *npu, enum npu_role role, int32_t height, int32_t width, int32_t depth,
                  struct npu_map *map);

/* Address of channel 0 of a position, and the distance of a channel from it. */
uint8_t *npu_pixel(const struct npu_map *map, int32_t y, int32_t x);
ptrdiff_t npu_channel(const struct npu_map *map, int32_t channel);

/* An element without its zero point; an element as it is. */
int32_t npu_load(const struct npu_map *map, const uint8_t *at);
void npu_store(const struct npu_map *map, uint8_t *at, int32_t value);

/* ---- Kernel windows -------------------------------------------------------------------------- */

/* One axis of a kernel: output position `o` and tap `k` read input o * stride + k * dilation - pad
 * of the upscaled input. */
struct npu_axis {
    int32_t taps;
    int32_t stride;
    int32_t dilation;
    int32_t pad;
    int32_t limit; /* of the upscaled input */
    uint8_t upscale;
};

/* Reads the registers of the kernel, of its padding and of the upscaling. */
bool npu_open_window(struct npu *npu, struct npu_axis *vertical, struct npu_axis *horizontal);
/* Elements of the input that windows use. */
int32_t npu_axis_size(const struct npu_axis *axis);

/* The input position, or -1 in the padding and at inserted zeros. */
int32_t npu_tap(const struct npu_axis *axis, int32_t output, int32_t tap);

/* ---- Weights --------------------------------------------------------------------------------- */

#define NPU_SYMBOLS 64 /* decoded ahead; a power of two */

struct npu_symbols {
    uint16_t values[NPU_SYMBOLS];
    uint32_t written;  /* symbols so far, with their quotients */
    uint32_t complete; /* of these, with their remainders */
    uint32_t read;
    uint16_t carry; /* quotient of a symbol that continues in the next chunk */
};

struct npu_weights {
    const uint8_t *bytes;
    uint32_t size;
    uint64_t bit;
    const char *fault; /* of a damaged stream, else null */
    struct npu_symbols weight;
    struct npu_symbols zeros;
    uint32_t weight_count; /* symbols of the slice */
    uint32_t zeros_count;
    uint32_t pending; /* zeros to deliver before the next symbol */
    uint16_t palette[32];
    uint8_t palette_size;
    uint8_t direct_offset;
    uint8_t weight_divisor; /* bits of a remainder */
    uint8_t zeros_divisor;
    uint8_t raw_bits; /* of a weight's symbol without quotient */
    bool has_palette; /* a slice has defined it */
    bool is_raw;      /* weights without quotients */
    bool is_truncated;
    bool has_zeros; /* runs of zeros between the weights */
    bool zeros_are_next;
};

void npu_weights_open(struct npu_weights *weights, const uint8_t *bytes, uint32_t size);
int32_t npu_weights_next(struct npu_weights *weights);
/* Whether the rest is padding. */
bool npu_weights_at_end(struct npu_weights *weights);

/* ---- Output ---------------------------------------------------------------------------------- */

enum npu_rounding { NPU_ROUND_DOUBLE, NPU_ROUND_TRUNCATE, NPU_ROUND_NATURAL };

/* A factor scale / 2^shift. */
struct npu_scale {
    uint32_t scale;
    uint8_t shift;
};

struct npu_output {
    struct npu_map map;
    enum npu_rounding rounding;
    bool has_global_scale;
    struct npu_scale scale; /* NPU_SET_OFM_SCALE */
    int32_t min;
    int32_t max;
    uint8_t function; /* NPU_SET_ACTIVATION */
    const uint8_t *lut;
};

bool npu_open_output(struct npu *npu, struct npu_output *output);

/* value * scale, rounded. Double rounding follows TensorFlow Lite: to 31 - `left` fractional bits
 * first, where the operand was shifted left. */
int64_t npu_rescale(int64_t value, struct npu_scale scale, enum npu_rounding rounding, int left);

/* Adds the zero point, limits, applies the activation, stores. */
void npu_finish(const struct npu_output *output, uint8_t *at, int64_t value);

/* The per-channel scale of `channel` and its bias; false: out of range. */
bool npu_channel_scale(struct npu *npu, int32_t channel, struct npu_scale *scale, int64_t *bias);

#endif
