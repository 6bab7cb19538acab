/* main.c: an LED controlled by keywords: LED 0 for "up", LED 1 for "down".
 *
 * Audio arrives over the UART: 16 kHz, 16 bits, little endian, one channel; each run processes 20
 * ms. To use a microphone and another LED, change only `next_sample` and `light`.
 */
#include <stdint.h>

#include "keyword.h"
#include "port/fwr_port.h"

#define LEDS (*(volatile uint32_t *)0x40028000u) /* FPGAIO of the MPS2 boards: one bit per LED */
#define SURE (190 - 128)                         /* of 127: minimum probability */
#define LIT_RUNS 25u                             /* half a second */

static uint32_t sram[(KEYWORD_SRAM_SIZE + 3) / 4] __attribute__((aligned(KEYWORD_SRAM_ALIGN)));
static const struct keyword_workspace_pools pools = {.sram = (uint8_t *)sram};

static uint32_t next_byte(void)
{
    int32_t byte;
    do {
        byte = fwr_port_byte_in();
    } while (byte < 0);
    return (uint32_t)byte;
}

static int16_t next_sample(void)
{
    uint32_t low = next_byte();
    return (int16_t)(low | next_byte() << 8);
}

/* Word 1 is "up", word 2 is "down"; 0 turns both LEDs off. */
static void light(uint32_t word)
{
    LEDS = word == 0 ? 0u : 1u << (word - 1u);
}

/* Returns the detected word, or 0. */
static uint32_t heard(const int8_t *probabilities)
{
    for (uint32_t word = 1; word < KEYWORD_WORDS_ELEMENTS; word++) {
        if (probabilities[word] >= SURE) {
            return word;
        }
    }
    return 0;
}

int main(void)
{
    struct keyword_inputs in;
    struct keyword_outputs out;
    uint32_t lit_runs = 0;
    fwr_port_init();
    light(0);
    keyword_map_io(&pools, &in, &out);
    keyword_reset(&pools);
    for (;;) {
        for (uint32_t i = 0; i < KEYWORD_SAMPLES_ELEMENTS; i++) {
            in.samples[i] = next_sample();
        }
        if (keyword_run(&in, &out, &pools) != KEYWORD_OK) {
            light(0);
            continue;
        }
        uint32_t word = heard(out.words);
        if (lit_runs > 0 && --lit_runs == 0) {
            light(0);
        } else if (lit_runs == 0 && word != 0) {
            light(word);
            lit_runs = LIT_RUNS;
        }
    }
}
