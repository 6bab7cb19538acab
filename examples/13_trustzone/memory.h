/* memory.h: the memory map of both worlds, also for the linker scripts. */
#ifndef MEMORY_H
#define MEMORY_H

#define S_CODE 0x10000000 /* SSRAM 1, lower half */
#define S_CODE_SIZE 0x200000
#define S_RAM 0x38000000 /* SSRAM 2 */
#define S_RAM_SIZE 0x200000
#define NS_CODE 0x00200000 /* SSRAM 1, upper half */
#define NS_CODE_SIZE 0x200000
#define NS_RAM 0x28200000 /* SSRAM 3 */
#define NS_RAM_SIZE 0x200000

#endif
