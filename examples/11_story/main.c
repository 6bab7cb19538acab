/* main.c: tell a story, token by token, on a UART.
 *
 * Each run takes a token and its position and returns the next token; the keys and values of
 * earlier tokens are the model's state in the pools. words.h, written by story.py, has the text of
 * each token.
 */
#include <stdint.h>

#include "port/fwr_port.h"
#include "story.h"
#include "words.h"

#define START 1 /* the token before a story */

static uint32_t sram[(STORY_SRAM_SIZE + 3) / 4] __attribute__((aligned(STORY_SRAM_ALIGN)));
static const struct story_workspace_pools pools = {.sram = (uint8_t *)sram};

static void say(const char *text)
{
    for (; *text != '\0'; text++) {
        fwr_port_byte_out((uint8_t)*text);
    }
}

int main(void)
{
    struct story_inputs in;
    struct story_outputs out;
    int32_t token = START;
    fwr_port_init();
    story_map_io(&pools, &in, &out);
    story_reset(&pools);
    for (int64_t position = 0; position < POSITIONS; position++) {
        in.token[0] = token;
        in.position[0] = position;
        if (story_run(&in, &out, &pools) != STORY_OK) {
            say("the model failed\r\n");
            break;
        }
        token = (int32_t)out.next[0];
        if (token == START) {
            break; /* the story has ended */
        }
        say(position == 0 && *words[token] == ' ' ? words[token] + 1 : words[token]);
    }
    say("\r\n");
    for (;;) {}
}
