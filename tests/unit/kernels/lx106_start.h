/* The start of an image for QEMU's simulator of an LX106, and calls of its host. */
#ifndef LX106_START_H
#define LX106_START_H

#include <stdint.h>

enum { HOST_EXIT = 1, HOST_WRITE = 4, HOST_OPEN = 5 };
enum { CREATE_AND_WRITE = 0x241, ALL_MAY_READ = 0644 };

/* The core begins at the first address of the code. An exception continues behind the base of
 * vectors, at a place for each kind. */
__asm__(".section .vectors, \"ax\"\n\t"
        ".globl start\n"
        "start:\n\t"
        "j begin\n\t"
        ".balign 4\n"
        "address_of_fault: .word fault\n"
        "address_of_vectors: .word vectors\n"
        "address_of_stack: .word stack_high\n"
        "address_of_run: .word run_all\n\t"
        ".balign 256\n"
        "vectors:\n\t"
        ".rept 8\n\t"
        ".balign 16\n\t"
        "l32r a0, address_of_fault\n\t"
        "jx a0\n\t"
        ".endr\n"
        "begin:\n\t"
        "l32r a0, address_of_vectors\n\t"
        "wsr.vecbase a0\n\t"
        "l32r a1, address_of_stack\n\t"
        "l32r a0, address_of_run\n\t"
        "jx a0\n\t"
        ".previous");

static inline uintptr_t simulator_call(uintptr_t number, uintptr_t a, uintptr_t b, uintptr_t c)
{
    register uintptr_t a2 __asm__("a2") = number;
    register uintptr_t a3 __asm__("a3") = a;
    register uintptr_t a4 __asm__("a4") = b;
    register uintptr_t a5 __asm__("a5") = c;
    __asm__ volatile("simcall" : "+r"(a2), "+r"(a3) : "r"(a4), "r"(a5) : "memory");
    return a2;
}

static inline void leave(uintptr_t status)
{
    (void)simulator_call(HOST_EXIT, status, 0, 0);
    for (;;) {}
}

/* Writes the file output.bin. */
static inline void write_output(const void *data, uintptr_t size)
{
    const uintptr_t path = (uintptr_t)"output.bin";
    const uintptr_t file = simulator_call(HOST_OPEN, path, CREATE_AND_WRITE, ALL_MAY_READ);
    (void)simulator_call(HOST_WRITE, file, (uintptr_t)data, size);
}

/* Returns 0: this core does not count instructions. */
static inline uint32_t executed_instructions(void)
{
    return 0;
}

#endif
