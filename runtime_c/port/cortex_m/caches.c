/* SPDX-License-Identifier: Apache-2.0 */
/* caches.c: the caches of the Cortex-M7 (Armv7-M architecture, B2.2; Cortex-M7 manual, 4.4).
 *
 * Only the core accesses memory, so no cache maintenance is needed later. The code is linked only
 * if the board enables caches.
 */
#include "cortex_m.h"

#define SCB_CCSIDR FWR_REG(0xE000ED80u)
#define SCB_CSSELR FWR_REG(0xE000ED84u)
#define SCB_ICIALLU FWR_REG(0xE000EF50u)
#define SCB_DCISW FWR_REG(0xE000EF60u)
#define CCR_DATA_CACHE (1u << 16)
#define CCR_INSTRUCTION_CACHE (1u << 17)
#define DATA_CACHE_LEVEL_1 0u

/* Set and way share one word: 32-byte lines, ways in the uppermost bits. */
void fwr_caches_init(void)
{
    SCB_ICIALLU = 0;
    SCB_CSSELR = DATA_CACHE_LEVEL_1;
    __asm__ volatile("dsb" ::: "memory");
    uint32_t geometry = SCB_CCSIDR;
    uint32_t sets = (geometry >> 13 & 0x7FFFu) + 1u;
    uint32_t ways = (geometry >> 3 & 0x3FFu) + 1u;
    uint32_t way_shift = ways == 1u ? 0u : (uint32_t)__builtin_clz(ways - 1u);
    for (uint32_t set = 0; set < sets; set++) {
        for (uint32_t way = 0; way < ways; way++) {
            SCB_DCISW = way << way_shift | set << 5;
        }
    }
    __asm__ volatile("dsb" ::: "memory");
    SCB_CCR |= CCR_DATA_CACHE | CCR_INSTRUCTION_CACHE;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}
