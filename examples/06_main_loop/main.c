/* main.c: an application with its own main loop that runs a model, without the runtime.
 *
 * It reads images of 64 bytes from stdin and prints the digits. The watchdog is kicked between
 * operators, since a run takes longer than the watchdog's timeout.
 */
#include <stdint.h>
#include <stdio.h>

#include "digits.h"
#include "hooks.h"

static uint32_t fed;

void watchdog_feed(uint32_t operator_index)
{
    (void)operator_index;
    fed++;
}

static int best_of(const int8_t *values, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++) {
        best = values[i] > values[best] ? i : best;
    }
    return best;
}

int main(void)
{
    static uint8_t sram[DIGITS_SRAM_SIZE] __attribute__((aligned(DIGITS_SRAM_ALIGN)));
    const struct digits_workspace_pools pools = {.sram = sram};
    struct digits_inputs in;
    struct digits_outputs out;
    uint32_t images = 0;
    digits_map_io(&pools, &in, &out);
    while (fread(in.image, 1, DIGITS_IMAGE_SIZE, stdin) == DIGITS_IMAGE_SIZE) {
        if (digits_run(&in, &out, &pools) != DIGITS_OK) {
            return 1;
        }
        printf("%d\n", best_of(out.digit, DIGITS_DIGIT_ELEMENTS));
        images++;
    }
    fprintf(stderr, "%u images, the watchdog was fed %u times\n", (unsigned)images, (unsigned)fed);
    return 0;
}
