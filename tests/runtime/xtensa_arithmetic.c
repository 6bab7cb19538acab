/* Computes results of every operation that gcc leaves to functions on the LX106, and writes them to
 * the file output.bin of the host: for each row of operations.inc, one word of 64 bits for each
 * pair of operands of its type. */
#include <stddef.h>
#include <stdint.h>

#include "lx106_start.h"

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
void fault(void);
void run_all(void);

__asm__(".section .rodata\n\t.balign 16\noperands:\n\t.incbin \"operands.bin\"\n\t.previous");
extern const uint64_t operands[];
static uint64_t results[OPERATIONS * CASES];

void *memcpy(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        ((volatile uint8_t *)to)[i] = ((const uint8_t *)from)[i];
    }
    return to;
}

void *memset(void *to, int value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        ((volatile uint8_t *)to)[i] = (uint8_t)value;
    }
    return to;
}

void fault(void)
{
    leave(3);
}

void run_all(void)
{
    const uint64_t *from = operands;
    uint64_t *to = results;

#define OPERATION(type, result, expression) \
    for (uint32_t i = 0; i < CASES; i++, from += 2) { \
        type a; \
        type b; \
        (void)memcpy(&a, &from[0], sizeof a); \
        (void)memcpy(&b, &from[1], sizeof b); \
        const result value = (result)(expression); \
        (void)memcpy(to++, &value, sizeof value); \
    }
#include "operations.inc"
    write_output(results, sizeof results);
    leave(0);
}
