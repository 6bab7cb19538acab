/* SPDX-License-Identifier: Apache-2.0 */
/* npu_output.c: from an operation's result to the element that is stored; see npu.h. */
#include "npu.h"

#include <string.h>

#define FUNCTION_NONE 0u
#define FUNCTION_TANH 3u
#define FUNCTION_SIGMOID 4u
#define FUNCTION_LUT 16u /* and the 7 codes after it */
#define CLIP_UINT8 2u
#define CLIP_INT8 3u
#define CLIP_INT16 5u

/* ---- Scaling --------------------------------------------------------------------------------- */

static int64_t limit(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* floor((value * scale + addend) / 2^shift). Values that the NPU cannot hold are limited. */
static int64_t multiply(int64_t value, struct npu_scale scale, int64_t addend)
{
    if (scale.scale > 1) {
        int64_t most = scale.shift < 16 ? INT32_MAX : (INT64_C(1) << 46);
        value = limit(value, -most, most);
    }
    if (scale.shift < 16) {
        return (value * (int64_t)scale.scale + addend) >> scale.shift;
    }
    int64_t high = (value >> 16) * (int64_t)scale.scale;
    int64_t low = (value & 0xffff) * (int64_t)scale.scale;
    return (high + ((low + addend) >> 16)) >> (scale.shift - 16);
}

int64_t npu_rescale(int64_t value, struct npu_scale scale, enum npu_rounding rounding, int left)
{
    int64_t half = scale.shift > 0 ? INT64_C(1) << (scale.shift - 1) : 0;
    if (rounding == NPU_ROUND_TRUNCATE) {
        return value < 0 ? -multiply(-value, scale, 0) : multiply(value, scale, 0);
    }
    if (rounding == NPU_ROUND_DOUBLE && scale.shift > 31 - left) {
        int64_t first = INT64_C(1) << (30 - left);
        half += value < 0 ? -first : first;
    }
    return multiply(value, scale, half);
}

/* ---- Activations ----------------------------------------------------------------------------- */

/* 2^16 / (1 + exp(-i / 24)), with the deviations of TensorFlow Lite's table. */
static const uint16_t sigmoid_table[256] = {
    32768, 33451, 34133, 34813, 35493, 36169, 36843, 37513, 38180, 38841, 39498, 40149, 40794,
    41432, 42064, 42688, 43304, 43912, 44511, 45102, 45683, 46255, 46817, 47369, 47911, 48443,
    48964, 49475, 49975, 50464, 50942, 51409, 51865, 52311, 52745, 53169, 53581, 53983, 54374,
    54755, 55125, 55485, 55834, 56174, 56503, 56823, 57133, 57433, 57724, 58007, 58280, 58544,
    58800, 59048, 59288, 59519, 59743, 59959, 60168, 60370, 60565, 60753, 60935, 61110, 61279,
    61441, 61599, 61750, 61896, 62036, 62172, 62302, 62428, 62549, 62666, 62778, 62886, 62990,
    63090, 63186, 63279, 63368, 63454, 63536, 63615, 63691, 63765, 63835, 63903, 63968, 64030,
    64090, 64148, 64204, 64257, 64308, 64357, 64405, 64450, 64494, 64536, 64576, 64614, 64652,
    64687, 64721, 64754, 64786, 64816, 64845, 64873, 64900, 64926, 64950, 64974, 64997, 65019,
    65039, 65060, 65079, 65097, 65115, 65132, 65149, 65164, 65179, 65194, 65208, 65221, 65234,
    65246, 65258, 65269, 65280, 65291, 65301, 65310, 65319, 65328, 65337, 65345, 65352, 65360,
    65367, 65374, 65381, 65387, 65393, 65399, 65404, 65410, 65415, 65420, 65425, 65429, 65433,
    65438, 65442, 65445, 65449, 65453, 65456, 65459, 65462, 65465, 65468, 65471, 65474, 65476,
    65479, 65481, 65483, 65485, 65488, 65489, 65491, 65493, 65495, 65497, 65498, 65500, 65501,
    65503, 65504, 65505, 65507, 65508, 65509, 65510, 65511, 65512, 65513, 65514, 65515, 65516,
    65517, 65517, 65518, 65519, 65520, 65520, 65521, 65522, 65522, 65523, 65523, 65524, 65524,
    65525, 65525, 65526, 65526, 65526, 65527, 65527, 65528, 65528, 65528, 65529, 65529, 65529,
    65529, 65530, 65530, 65530, 65530, 65531, 65531, 65531, 65531, 65531, 65532, 65532, 65532,
    65532, 65532, 65532, 65533, 65533, 65533, 65533, 65533, 65533, 65533, 65533, 65534, 65534,
    65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65535,
};

/* From steps of 1/12288 to 15 fractional bits, by linear interpolation. */
static int32_t interpolate(int64_t value, unsigned bits)
{
    int32_t most = 255 << bits;
    int32_t distance = (int32_t)limit(value < 0 ? -value : value, 0, most);
    int32_t low = sigmoid_table[distance >> bits];
    int32_t high = distance < most ? sigmoid_table[(distance >> bits) + 1] : low;
    return (low << bits) + (distance & ((1 << bits) - 1)) * (high - low);
}

static int32_t sigmoid(int64_t value)
{
    int32_t y = (int32_t)limit(interpolate(value, 9), 0, INT16_MAX << 10);
    return (value < 0 ? (1 << 25) - y + 511 : y + 512) >> 10;
}

static int32_t tanh_of(int64_t value)
{
    int32_t y = interpolate(value, 8);
    return (value < 0 ? (1 << 23) - y + 127 : y - (1 << 23) + 128) >> 8;
}

static int32_t look_up(const struct npu_output *output, int32_t value)
{
    int32_t word;
    const uint8_t *lut = output->lut;
    if (output->map.size == 1) {
        return output->map.is_signed ? (int8_t)lut[value + 128] : (int32_t)lut[value];
    }
    if (output->map.size == 4) {
        memcpy(&word, &lut[4 * (value + 128)], sizeof word);
        return word;
    }
    memcpy(&word, &lut[4 * ((value + 32768) >> 7)], sizeof word);
    int32_t base = (int16_t)(word & 0xffff);
    return base + (((word >> 16) * (value & 127) + 64) >> 7);
}

void npu_finish(const struct npu_output *output, uint8_t *at, int64_t value)
{
    if (output->function == FUNCTION_TANH) {
        value = tanh_of(value);
    } else if (output->function == FUNCTION_SIGMOID) {
        value = sigmoid(value);
    }
    int64_t shifted = limit(value + output->map.zero_point, output->min, output->max);
    int32_t result = (int32_t)shifted;
    if (output->lut != NULL) {
        result = look_up(output, result);
    }
    npu_store(&output->map, at, result);
}

/* ---- Registers ------------------------------------------------------------------------------- */

static void set_limits(struct npu_output *output, int32_t min, int32_t max)
{
    output->min = (int32_t)limit(output->min, min, max);
    output->max = (int32_t)limit(output->max, output->min, max);
}

/* The range of the clip code, or else of the output's type. 32 bits without a clip code are neither
 * limited nor shifted by the zero point. */
static bool read_limits(struct npu *npu, struct npu_output *output)
{
    uint16_t min = npu->parameters[NPU_SET_ACTIVATION_MIN];
    uint16_t max = npu->parameters[NPU_SET_ACTIVATION_MAX];
    unsigned clip = npu->parameters[NPU_SET_ACTIVATION] >> 12 & 7u;
    bool is_signed = clip == 0 ? output->map.is_signed : clip != CLIP_UINT8;
    int32_t bits = 8 * output->map.size;
    output->min = is_signed ? (int16_t)min : (int32_t)min;
    output->max = is_signed ? (int16_t)max : (int32_t)max;
    if (clip == CLIP_UINT8 || clip == CLIP_INT8) {
        bits = 8;
    } else if (clip == CLIP_INT16) {
        bits = 16;
    } else if (clip != 0) {
        return npu_fail_number(npu, "unknown clip range", clip);
    } else if (bits == 32) {
        output->min = INT32_MIN;
        output->max = INT32_MAX;
        output->map.zero_point = 0;
        return true;
    }
    int32_t span = 1 << bits;
    set_limits(output, is_signed ? -span / 2 : 0, is_signed ? span / 2 - 1 : span - 1);
    return true;
}

static bool open_lut(struct npu *npu, struct npu_output *output)
{
    unsigned slot = output->function - FUNCTION_LUT;
    unsigned slots = output->map.size == 1 ? 1 : output->map.size == 4 ? 4 : 8;
    unsigned mask = ((1u << slots) - 1u) << slot;
    int32_t first = output->map.is_signed ? -128 : 0; /* value that a table of bytes starts with */
    bool is_narrow = output->min >= first && output->max < first + 256;
    if (output->map.size > 1) {
        is_narrow = output->map.is_signed && (is_narrow || output->map.size == 2);
    }
    if (slot % slots != 0 || slot + slots > 8 || !is_narrow) {
        return npu_fail_number(npu, "no lookup table of this size in slot", slot);
    }
    if ((npu->lut_slots & mask) != mask) {
        return npu_fail_number(npu, "no lookup table was loaded into slot", slot);
    }
    output->lut = &npu->lut[slot * NPU_LUT_SLOT];
    return true;
}

/* Elements of the OFM are distinct, so their region is as large. */
static bool check_size(struct npu *npu, const struct npu_map *map)
{
    const uint16_t *set = npu->parameters;
    uint64_t places = (set[NPU_SET_OFM_HEIGHT_M1] + UINT64_C(1)) * (set[NPU_SET_OFM_WIDTH_M1] + 1u);
    uint64_t size = places * (uint64_t)map->depth * map->size;
    return size <= npu->regions[set[NPU_SET_OFM_REGION] & 7u].size ||
           npu_fail_number(npu, "the OFM exceeds its region: bytes", size);
}

bool npu_open_output(struct npu *npu, struct npu_output *output)
{
    const uint16_t *set = npu->parameters;
    const struct npu_payload *scale = &npu->payloads[NPU_SET_OFM_SCALE];
    unsigned precision = set[NPU_SET_OFM_PRECISION];
    unsigned function = set[NPU_SET_ACTIVATION] & 31u;
    *output = (struct npu_output){
        .rounding = (enum npu_rounding)(precision >> 14 & 3u),
        .has_global_scale = (precision >> 8 & 1u) != 0,
        .scale = {scale->value, (uint8_t)(scale->parameter & 63u)},
        .function = (uint8_t)function,
    };
    if (!npu_open_map(npu, NPU_OFM, set[NPU_SET_OFM_HEIGHT_M1] + 1, set[NPU_SET_OFM_WIDTH_M1] + 1,
                      set[NPU_SET_OFM_DEPTH_M1] + 1, &output->map) ||
        !check_size(npu, &output->map) || !read_limits(npu, output)) {
        return false;
    }
    if (output->rounding > NPU_ROUND_NATURAL) {
        return npu_fail(npu, "unknown rounding of the OFM");
    }
    if (function >= FUNCTION_LUT && function < FUNCTION_LUT + 8) {
        return open_lut(npu, output);
    }
    if (function == FUNCTION_TANH || function == FUNCTION_SIGMOID) {
        return output->map.size == 2 || npu_fail(npu, "tanh and sigmoid need an OFM of 16 bits");
    }
    return function == FUNCTION_NONE || npu_fail_number(npu, "unknown activation", function);
}

bool npu_channel_scale(struct npu *npu, int32_t channel, struct npu_scale *scale, int64_t *bias)
{
    bool is_second = npu->cores == 2 && channel % 2 != 0;
    unsigned base = is_second ? NPU_SET_SCALE1_BASE : NPU_SET_SCALE_BASE;
    unsigned length = is_second ? NPU_SET_SCALE1_LENGTH : NPU_SET_SCALE_LENGTH;
    uint64_t at = 10u * (uint64_t)(channel / npu->cores);
    if (at + 10u > npu->payloads[length].value) {
        return npu_fail_number(npu, "no scale and bias of channel", (uint64_t)channel);
    }
    const uint8_t *record =
        npu_bytes(npu, "scale and bias", npu->parameters[NPU_SET_SCALE_REGION] & 7u,
                  npu_address(npu, base) + at, 10);
    if (record == NULL) {
        return false;
    }
    uint64_t bits = record[4];
    uint32_t word = record[8];
    for (int i = 3; i >= 0; i--) {
        bits = bits << 8 | record[i];
        word = word << 8 | record[5 + i];
    }
    *bias = (int64_t)(bits ^ UINT64_C(1) << 39) - (INT64_C(1) << 39);
    *scale = (struct npu_scale){word, record[9] & 63u};
    return true;
}
