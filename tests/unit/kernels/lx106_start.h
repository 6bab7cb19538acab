/* The start of an image for QEMU's simulator of an LX106, and calls of its host. */
#ifndef LX106_START_H
#define LX106_START_H

#include "simulator_calls.h"

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

#endif
