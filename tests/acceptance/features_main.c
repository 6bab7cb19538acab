/* features_main.c: 1,000 seconds of pseudorandom sound, and the sum of all rows.
 *
 * A sample is a function of its number; each second has another amplitude. The result is
 * printed as eight hexadecimal digits. With RECORDED_HOPS, the sound is the array `recorded`.
 */
#include <stdint.h>

#include "audio_features.h"
#include "port/fwr_port.h"

#ifdef RECORDED_HOPS
#define HOPS RECORDED_HOPS
#else
#define SECONDS 1000u
#define HOPS (SECONDS * 16000u / AUDIO_FEATURES_SAMPLES_ELEMENTS)
#endif

static uint32_t sram[(AUDIO_FEATURES_SRAM_SIZE + 3) / 4]
    __attribute__((aligned(AUDIO_FEATURES_SRAM_ALIGN)));
static const struct audio_features_workspace_pools pools = {.sram = (uint8_t *)sram};

static uint32_t mixed(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7FEB352Du;
    x = (x ^ x >> 15) * 0x846CA68Bu;
    return x ^ x >> 16;
}

static int16_t sound_at(uint32_t sample)
{
#ifdef RECORDED_HOPS
    return recorded[sample];
#else
    int16_t loud = (int16_t)(mixed(sample) >> 16);
    return (int16_t)(loud >> sample / 16000u % 16u);
#endif
}

static void print_hex(uint32_t value)
{
    for (int digit = 28; digit >= 0; digit -= 4) {
        fwr_port_byte_out((uint8_t) "0123456789abcdef"[value >> digit & 15u]);
    }
    fwr_port_byte_out('\r');
    fwr_port_byte_out('\n');
}

int main(void)
{
    struct audio_features_inputs in;
    struct audio_features_outputs out;
    uint32_t sample = 0, sum = 0, place = 0;
    fwr_port_init();
    audio_features_map_io(&pools, &in, &out);
    audio_features_reset(&pools);
    for (uint32_t hop = 0; hop < HOPS; hop++) {
        for (uint32_t i = 0; i < AUDIO_FEATURES_SAMPLES_ELEMENTS; i++, sample++) {
            in.samples[i] = sound_at(sample);
        }
        if (audio_features_run(&in, &out, &pools) != AUDIO_FEATURES_OK) {
            sum = 0;
            break;
        }
        for (uint32_t i = 0; i < AUDIO_FEATURES_FEATURES_ROW_ELEMENTS; i++, place++) {
            sum += mixed(place) * (uint32_t)(out.features_row[i] + 128);
        }
    }
    print_hex(sum);
    for (;;) {
    }
}
