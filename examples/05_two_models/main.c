/* main.c: two models in one image with shared pools: digits in images, words in audio.
 *
 * 'd' and 64 bytes of an image are answered with "digit 7", 'a' and 640 bytes of audio with the
 * probabilities of the words. The models were planned jointly: neither overwrites state of the
 * other, so they may run in any order.
 */
#include <stdint.h>

#include "digits.h"
#include "keyword.h"
#include "port/fwr_port.h"

/* The larger of both sizes. */
static union {
    uint8_t digits[DIGITS_SRAM_SIZE];
    uint8_t keyword[KEYWORD_SRAM_SIZE];
} sram __attribute__((aligned(DIGITS_SRAM_ALIGN), aligned(KEYWORD_SRAM_ALIGN)));

static const struct digits_workspace_pools digits_pools = {.sram = sram.digits};
static const struct keyword_workspace_pools keyword_pools = {.sram = sram.keyword};

static uint8_t next_byte(void)
{
    int32_t byte;
    do {
        byte = fwr_port_byte_in();
    } while (byte < 0);
    return (uint8_t)byte;
}

static void read_bytes(void *to, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++) {
        ((uint8_t *)to)[i] = next_byte();
    }
}

static void say(const char *text)
{
    for (; *text != '\0'; text++) {
        fwr_port_byte_out((uint8_t)*text);
    }
}

static void say_number(uint32_t value)
{
    char text[] = {' ', (char)('0' + (char)(value / 100u % 10u)),
                   (char)('0' + (char)(value / 10u % 10u)), (char)('0' + (char)(value % 10u)),
                   '\0'};
    say(text);
}

static void read_digit(void)
{
    struct digits_inputs in;
    struct digits_outputs out;
    digits_map_io(&digits_pools, &in, &out);
    read_bytes(in.image, DIGITS_IMAGE_SIZE);
    if (digits_run(&in, &out, &digits_pools) != DIGITS_OK) {
        say("digit unknown\r\n");
        return;
    }
    uint32_t best = 0;
    for (uint32_t i = 1; i < DIGITS_DIGIT_ELEMENTS; i++) {
        best = out.digit[i] > out.digit[best] ? i : best;
    }
    say("digit");
    say_number(best);
    say("\r\n");
}

static void hear(void)
{
    struct keyword_inputs in;
    struct keyword_outputs out;
    keyword_map_io(&keyword_pools, &in, &out);
    read_bytes(in.samples, KEYWORD_SAMPLES_SIZE);
    if (keyword_run(&in, &out, &keyword_pools) != KEYWORD_OK) {
        say("words unknown\r\n");
        return;
    }
    say("words");
    for (uint32_t i = 0; i < KEYWORD_WORDS_ELEMENTS; i++) {
        say_number((uint32_t)(out.words[i] - KEYWORD_WORDS_ZERO_POINT));
    }
    say("\r\n");
}

int main(void)
{
    fwr_port_init();
    keyword_reset(&keyword_pools);
    for (;;) {
        uint8_t what = next_byte();
        if (what == 'd') {
            read_digit();
        } else if (what == 'a') {
            hear();
        }
    }
}
