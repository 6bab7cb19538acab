/* SPDX-License-Identifier: Apache-2.0 */
/* boot_rp2040.c: the first 256 bytes of an RP2040's flash (data sheet, 2.8.1.3 and 4.10).
 *
 * The boot ROM copies them to RAM and executes them if their CRC-32 is correct (polynomial
 * 0x04C11DB7, initial value all ones, most significant bit first, over the 252 bytes before it).
 * They map the flash into the address space with the serial read that every flash supports (03h),
 * at a quarter of the processor clock, and start the application through the vector table that
 * follows.
 */
__asm__(".section .boot.first, \"ax\"\n"
        ".syntax unified\n"
        ".thumb\n"
        "    ldr  r3, ssi\n"
        "    movs r1, #0\n"
        "    str  r1, [r3, #0x08]\n" /* disabled during setup */
        "    movs r1, #4\n"
        "    str  r1, [r3, #0x14]\n" /* clock divider */
        "    ldr  r1, format\n"
        "    str  r1, [r3, #0x00]\n"
        "    movs r1, #0\n"
        "    str  r1, [r3, #0x04]\n" /* one word per read */
        "    ldr  r1, read_command\n"
        "    movs r0, #0xF4\n"
        "    str  r1, [r3, r0]\n"
        "    movs r1, #1\n"
        "    str  r1, [r3, #0x08]\n"
        "    ldr  r0, vectors\n"
        "    ldr  r1, vector_table_offset\n"
        "    str  r0, [r1]\n"
        "    ldmia r0!, {r1, r2}\n"
        "    msr  msp, r1\n"
        "    bx   r2\n"
        ".balign 4\n"
        "ssi: .word 0x18000000\n"
        "format: .word 0x001F0300\n"       /* 32-bit frames: command, then data, on one line */
        "read_command: .word 0x03000218\n" /* 03h, 8 command bits, 24 address bits */
        "vectors: .word 0x10000100\n"
        "vector_table_offset: .word 0xE000ED08\n"
        ".org 252\n"
        ".word 0x3D6BB4CD\n"
        ".text\n");
