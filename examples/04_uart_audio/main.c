/* main.c: keyword spotting on audio from a UART: 16 kHz, 16 bits, little endian, one channel.
 *
 * Each run processes 20 ms of samples; the model keeps its state in its pools. A detected word is
 * printed once, with the time in seconds.
 */
#include <stdint.h>

#include "keyword.h"
#include "port/fwr_port.h"

#define RUN_MS 20u
#define SURE (190 - 128) /* of 127: minimum probability of a word */
#define APART_RUNS 25u   /* no repeated detection within half a second */

static const char *const words[] = {"nothing", "up", "down"};

static uint32_t sram[(KEYWORD_SRAM_SIZE + 3) / 4] __attribute__((aligned(KEYWORD_SRAM_ALIGN)));
static const struct keyword_workspace_pools pools = {.sram = (uint8_t *)sram};

static uint8_t next_byte(void)
{
    int32_t byte;
    do {
        byte = fwr_port_byte_in();
    } while (byte < 0);
    return (uint8_t)byte;
}

static void say(const char *text)
{
    for (; *text != '\0'; text++) {
        fwr_port_byte_out((uint8_t)*text);
    }
}

static void say_seconds(uint32_t hundredths)
{
    char text[] = "00.00 s  ";
    text[0] = (char)('0' + (char)(hundredths / 1000u % 10u));
    text[1] = (char)('0' + (char)(hundredths / 100u % 10u));
    text[3] = (char)('0' + (char)(hundredths / 10u % 10u));
    text[4] = (char)('0' + (char)(hundredths % 10u));
    say(text);
}

/* Returns the detected word, or 0. */
static uint32_t heard(const int8_t *probabilities)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < sizeof words / sizeof words[0]; i++) {
        best = probabilities[i] > probabilities[best] ? i : best;
    }
    return probabilities[best] >= SURE ? best : 0;
}

int main(void)
{
    struct keyword_inputs in;
    struct keyword_outputs out;
    uint32_t last = 0;
    fwr_port_init();
    keyword_map_io(&pools, &in, &out);
    keyword_reset(&pools);
    for (uint32_t run = 1;; run++) {
        for (uint32_t i = 0; i < KEYWORD_SAMPLES_ELEMENTS; i++) {
            uint32_t low = next_byte();
            in.samples[i] = (int16_t)(low | (uint32_t)next_byte() << 8);
        }
        if (keyword_run(&in, &out, &pools) != KEYWORD_OK) {
            say("the model failed\r\n");
            continue;
        }
        uint32_t word = heard(out.words);
        if (word != 0 && (last == 0 || run >= last + APART_RUNS)) {
            last = run;
            say_seconds(run * RUN_MS / 10u);
            say(words[word]);
            say("\r\n");
        }
    }
}
