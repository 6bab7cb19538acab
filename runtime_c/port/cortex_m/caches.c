/* SPDX-License-Identifier: Apache-2.0 */
/* caches.c: the caches of the Cortex-M7 (Armv7-M architecture, B2.2; Cortex-M7 manual, 4.4).
 *
 * Linked only if the board enables caches. Drivers of other bus masters, such as DMA, maintain the
 * lines of their buffers, which the memory plan shares with no other buffer.
 */
#include "cortex_m.h"
#include "port/fwr_drivers.h"

#define SCB_CCSIDR FWR_REG(0xE000ED80u)
#define SCB_CSSELR FWR_REG(0xE000ED84u)
#define SCB_ICIALLU FWR_REG(0xE000EF50u)
#define SCB_DCIMVAC FWR_REG(0xE000EF5Cu)
#define SCB_DCISW FWR_REG(0xE000EF60u)
#define SCB_DCCMVAC FWR_REG(0xE000EF68u)
#define SCB_DCCIMVAC FWR_REG(0xE000EF70u)
#define CCR_DATA_CACHE 0x00010000u
#define CCR_INSTRUCTION_CACHE 0x00020000u
#define DATA_CACHE_LEVEL_1 0u
#define LINE_BYTES 32u

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

static void maintain(volatile uint32_t *operation, uint32_t start, uint32_t size)
{
    const uint32_t end = start + size;
    __asm__ volatile("dsb" ::: "memory");
    for (uint32_t line = start & ~(LINE_BYTES - 1u); line < end; line += LINE_BYTES) {
        *operation = line;
    }
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}

void fwr_cache_clean(uint32_t start, uint32_t size)
{
    maintain(&SCB_DCCMVAC, start, size);
}

void fwr_cache_clean_invalidate(uint32_t start, uint32_t size)
{
    maintain(&SCB_DCCIMVAC, start, size);
}

void fwr_cache_invalidate(uint32_t start, uint32_t size)
{
    maintain(&SCB_DCIMVAC, start, size);
}
