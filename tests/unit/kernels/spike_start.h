/* The start of an image for Spike, and calls of its host by the interface HTIF. */
#ifndef SPIKE_START_H
#define SPIKE_START_H

#include <stdint.h>

enum { HOST_OPEN_AT = 56, HOST_WRITE = 64, HOST_EXIT = 93 };
enum { CREATE_AND_WRITE = 0x241, ALL_MAY_READ = 0644, WORKING_FOLDER = -100 };

/* The simulator finds these words by their names. */
extern volatile uint32_t tohost[2], fromhost[2];
__asm__(".section .data.htif, \"aw\"\n\t"
        ".balign 64\n\t"
        ".globl tohost, fromhost\n"
        "tohost: .dword 0\n\t"
        ".balign 64\n"
        "fromhost: .dword 0\n\t"
        ".previous");

__attribute__((naked, section(".vectors"))) void start(void)
{
    __asm__ volatile("la sp, stack_high\n\t"
                     "la t0, fault\n\t"
                     "csrw mtvec, t0\n\t"
                     "li t0, 0x600\n\t" /* enables packed SIMD, as vectors */
                     "csrs mstatus, t0\n\t"
                     "j run_all");
}

/* Calls the host with up to five arguments and returns its result. */
static inline uintptr_t call_proxy(uintptr_t number, uintptr_t a, uintptr_t b, uintptr_t c,
                                   uintptr_t d, uintptr_t e)
{
    static volatile uint64_t words[8] __attribute__((aligned(64)));
    const uintptr_t given[6] = {number, a, b, c, d, e};
    for (int i = 0; i < 6; ++i) {
        words[i] = given[i];
    }
    __asm__ volatile("fence" ::: "memory");
    tohost[1] = 0;
    tohost[0] = (uint32_t)(uintptr_t)words;
    while (fromhost[0] == 0) {}
    fromhost[0] = 0;
    return (uintptr_t)words[0];
}

/* Returns the number of a new file; `size` includes the end of its name. */
static inline uintptr_t open_file(uintptr_t name, uintptr_t size)
{
    return call_proxy(HOST_OPEN_AT, (uintptr_t)WORKING_FOLDER, name, size, CREATE_AND_WRITE,
                      ALL_MAY_READ);
}

static inline void leave(uintptr_t status)
{
    (void)call_proxy(HOST_EXIT, status, 0, 0, 0, 0);
    for (;;) {}
}

/* Writes the file output.bin. */
static inline void write_output(const void *data, uintptr_t size)
{
    static const char path[] = "output.bin";
    const uintptr_t file = open_file((uintptr_t)path, sizeof path);
    (void)call_proxy(HOST_WRITE, file, (uintptr_t)data, size, 0, 0);
}

/* Returns the instructions that the core has executed, modulo 2^32. */
static inline uint32_t executed_instructions(void)
{
    uint32_t count;
    __asm__ volatile("csrr %0, minstret" : "=r"(count)::"memory");
    return count;
}

#endif
