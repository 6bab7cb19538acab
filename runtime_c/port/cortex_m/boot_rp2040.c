/* SPDX-License-Identifier: Apache-2.0 */
/* boot_rp2040.c: the first 256 bytes of an RP2040's flash (data sheet, 2.8.1.3 and 4.10).
 *
 * The boot ROM copies them to RAM and runs them if their checksum is right: a CRC-32 (polynomial
 * 0x04C11DB7, from all ones, most significant bit first) of the 252 bytes before it. They make the
 * flash readable in its address space by the serial read that every flash knows (03h), at a quarter
 * of the processor's clock, and start what the vectors behind them say.
 */
__asm__(".section .boot.first, \"ax\"\n"
        ".syntax unified\n"
        ".thumb\n"
        "    ldr  r3, ssi\n"
        "    movs r1, #0\n"
        "    str  r1, [r3, #0x08]\n" /* off while it is set up */
        "    movs r1, #4\n"
        "    str  r1, [r3, #0x14]\n" /* the clock's divider */
        "    ldr  r1, format\n"
        "    str  r1, [r3, #0x00]\n"
        "    movs r1, #0\n"
        "    str  r1, [r3, #0x04]\n" /* one word a read */
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
        "format: .word 0x001F0300\n"       /* 32 bits a frame, command then data, one line */
        "read_command: .word 0x03000218\n" /* 03h, 8 bits of command, 24 of address */
        "vectors: .word 0x10000100\n"
        "vector_table_offset: .word 0xE000ED08\n"
        ".org 252\n"
        ".word 0x3D6BB4CD\n"
        ".text\n");
