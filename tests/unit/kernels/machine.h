/* Between the functions of instructions, which are generated, and the program that runs them. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdint.h>

/* Executes one instruction for the operands of a case and stores the results. */
struct trial {
    void (*run)(const uint8_t *operands, uint8_t *results);
    uint32_t result_bytes;
};

extern const struct trial trials[TRIALS];
extern const uint8_t cases[CASES][CASE_BYTES];

#endif
