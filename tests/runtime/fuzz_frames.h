/* fuzz_frames.h: frames of a simulated host for fuzz tests. */
#ifndef FUZZ_FRAMES_H
#define FUZZ_FRAMES_H

#include <stdint.h>

/* Encodes a closed frame of `end` bytes and passes each byte to `take`. */
static inline void hand_over(void (*take)(uint8_t), const uint8_t *frame, uint32_t end)
{
    uint32_t at = 0;
    take(0);
    while (at <= end) {
        uint32_t length = 0;
        while (length < 254u && at + length < end && frame[at + length] != 0) {
            length++;
        }
        take((uint8_t)(length + 1u));
        for (uint32_t i = 0; i < length; i++) {
            take(frame[at + i]);
        }
        at += length;
        if (length == 254u && at == end) {
            break;
        }
        at += length < 254u;
    }
    take(0);
}

#endif
