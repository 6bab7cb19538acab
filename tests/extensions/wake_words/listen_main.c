/* listen_main.c: hears the 30 ms of sound that a debugger writes, at each byte on the console.
 *
 * The sound is noise if none is written.
 * It sends a byte when it is ready. An answer is the ticks of the board's counter in 4 bytes, the
 * last probability of each word, and the bits of the words that were heard.
 */
#include <stdint.h>

#include "port/fwr_port.h"
#include "wake_words.h"

#define STEPS 3u

int16_t listen_sound[STEPS * WAKE_WORDS_STEP_SAMPLES];
uint32_t listen_30_ms(void);

__attribute__((noinline)) uint32_t listen_30_ms(void)
{
    uint32_t heard = 0;
    for (uint32_t step = 0; step < STEPS; ++step) {
        heard |= wake_words_step(&listen_sound[step * WAKE_WORDS_STEP_SAMPLES]);
    }
    return heard;
}

static void send_word(uint32_t word)
{
    for (uint32_t shift = 0; shift < 32u; shift += 8) {
        fwr_port_byte_out((uint8_t)(word >> shift));
    }
}

static void fill_with_noise(void)
{
    uint32_t state = 1;
    for (uint32_t i = 0; i < STEPS * WAKE_WORDS_STEP_SAMPLES; ++i) {
        state = state * 1664525u + 1013904223u;
        listen_sound[i] = (int16_t)(uint16_t)(state >> 16);
    }
}

int main(void)
{
    fwr_port_init();
    fill_with_noise();
    wake_words_reset();
    fwr_port_byte_out('\n');
    for (;;) {
        if (fwr_port_byte_in() < 0) {
            continue;
        }
        fwr_port_counter_align();
        const uint64_t start = fwr_port_counter();
        const uint32_t heard = listen_30_ms();
        send_word((uint32_t)(fwr_port_counter() - start));
        for (uint32_t word = 0; word < WAKE_WORDS_COUNT; ++word) {
            fwr_port_byte_out(wake_words_state(word).latest);
        }
        fwr_port_byte_out((uint8_t)heard);
    }
}
