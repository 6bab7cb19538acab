/* SPDX-License-Identifier: Apache-2.0 */
/* dma_pl081.c: memory-to-memory copies with Arm's PL080 and PL081 (DDI0196, DDI0218).
 *
 * Each channel executes its copies in sequence; channels work at the same time. A copy with more
 * words than a transfer can count becomes a linked list of transfers; one longer than the list
 * continues at the next poll. The end of a list raises the interrupt, which wakes the core and is
 * never taken: it is enabled only while interrupts are masked. A channel disables itself at the
 * end, which is how completion is detected.
 *
 * Memory order: the source is in memory before the channel is enabled, and the copy is read after
 * it is disabled (DSB). If the board enables caches, the source and the list are cleaned first; the
 * destination is cleaned and invalidated first and invalidated at the end, because the core may
 * have fetched lines of it.
 */
#include "cortex_m.h"

#include "fwr.h"
#include "port/fwr_drivers.h"
#include "port/fwr_port.h"

#define DMA_TC_CLEAR FWR_REG(FWR_DMA_BASE + 0x008u)
#define DMA_ERRORS FWR_REG(FWR_DMA_BASE + 0x018u)
#define DMA_ERROR_CLEAR FWR_REG(FWR_DMA_BASE + 0x010u)
#define DMA_ENABLED FWR_REG(FWR_DMA_BASE + 0x01Cu)
#define DMA_CONFIG FWR_REG(FWR_DMA_BASE + 0x030u)
#define CH_REG(channel, offset) FWR_REG(FWR_DMA_BASE + 0x100u + 0x20u * (channel) + (offset))
#define CH_FROM(channel) CH_REG(channel, 0x00u)
#define CH_TO(channel) CH_REG(channel, 0x04u)
#define CH_NEXT(channel) CH_REG(channel, 0x08u)
#define CH_CONTROL(channel) CH_REG(channel, 0x0Cu)
#define CH_CONFIG(channel) CH_REG(channel, 0x10u)
#define ALL_CHANNELS ((1u << FWR_DMA_CHANNELS) - 1u)

#define CONTROL_ITEMS_MAX 0xFFFu
#define CONTROL_BURSTS ((1u << 12) | (1u << 15)) /* of four items, as the FIFO holds */
#define CONTROL_WORDS ((2u << 18) | (2u << 21))  /* 0 selects bytes */
#define CONTROL_INCREMENT ((1u << 26) | (1u << 27))
#define CONTROL_INTERRUPT (1u << 31)
#define CONFIG_ON (1u << 0)
#define CONFIG_INTERRUPTS ((1u << 14) | (1u << 15)) /* error and terminal-count interrupts */

#define NVIC_ENABLE FWR_REG(0xE000E100u + FWR_DMA_IRQ / 32u * 4u)
#define NVIC_DISABLE FWR_REG(0xE000E180u + FWR_DMA_IRQ / 32u * 4u)
#define NVIC_FORGET FWR_REG(0xE000E280u + FWR_DMA_IRQ / 32u * 4u)
#define NVIC_BIT (1u << (FWR_DMA_IRQ % 32u))

#define LIST_TRANSFERS 8u

#if defined(FWR_CACHES)
#define MAINTAIN(operation, start, size) fwr_cache_##operation(start, size)
#else
#define MAINTAIN(operation, start, size) ((void)0)
#endif

/* Layout defined by the controller. */
struct transfer {
    uint32_t from;
    uint32_t to;
    uint32_t next;
    uint32_t control;
};

struct copy {
    struct transfer list[LIST_TRANSFERS] __attribute__((aligned(32)));
    uint32_t from;
    uint32_t to;
    uint32_t left; /* bytes not yet in the list */
    uint32_t destination;
    uint32_t size;
};

static struct copy copies[FWR_DMA_CHANNELS];

static void order_memory(void)
{
    __asm__ volatile("dsb" ::: "memory");
}

static int is_busy(uint32_t channel)
{
    return (DMA_ENABLED & (1u << channel)) != 0;
}

/* Sleeps until an interrupt, such as a channel's; returns at once if the channel is off. */
static void sleep_while_busy(uint32_t channel)
{
    uint32_t masked;
    __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(masked)::"memory");
    NVIC_ENABLE = NVIC_BIT;
    order_memory();
    if (is_busy(channel)) {
        __asm__ volatile("wfi" ::: "memory");
    }
    NVIC_DISABLE = NVIC_BIT;
    DMA_TC_CLEAR = ALL_CHANNELS;
    order_memory();
    NVIC_FORGET = NVIC_BIT;
    __asm__ volatile("msr primask, %0\n\tisb" ::"r"(masked) : "memory");
}

/* Builds a list of the remaining transfers, as far as it has room, and enables the channel. */
static void begin_list(uint32_t channel)
{
    struct copy *copy = &copies[channel];
    struct transfer *list = copy->list;
    const int by_words = ((copy->from | copy->to | copy->left) & 3u) == 0;
    const uint32_t item_bytes = by_words ? 4u : 1u;
    const uint32_t control = CONTROL_BURSTS | (by_words ? CONTROL_WORDS : 0u) | CONTROL_INCREMENT;
    uint32_t count = 0;
    while (copy->left != 0 && count != LIST_TRANSFERS) {
        const uint32_t wanted = copy->left / item_bytes;
        const uint32_t items = wanted < CONTROL_ITEMS_MAX ? wanted : CONTROL_ITEMS_MAX;
        list[count].from = copy->from;
        list[count].to = copy->to;
        list[count].next = (uint32_t)&list[count + 1u];
        list[count].control = items | control;
        copy->from += items * item_bytes;
        copy->to += items * item_bytes;
        copy->left -= items * item_bytes;
        count++;
    }
    list[count - 1u].next = 0;
    list[count - 1u].control |= CONTROL_INTERRUPT;
    MAINTAIN(clean, (uint32_t)list, sizeof copy->list);
    order_memory();
    CH_FROM(channel) = list[0].from;
    CH_TO(channel) = list[0].to;
    CH_NEXT(channel) = list[0].next;
    CH_CONTROL(channel) = list[0].control;
    DMA_CONFIG = CONFIG_ON;
    CH_CONFIG(channel) = CONFIG_ON | CONFIG_INTERRUPTS;
}

/* Waits until the copies of a channel have completed. */
static int32_t finish(uint32_t channel)
{
    struct copy *copy = &copies[channel];
    int32_t status = FWR_OK;
    for (;;) {
        if ((DMA_ERRORS & (1u << channel)) != 0) {
            DMA_ERROR_CLEAR = 1u << channel;
            copy->left = 0;
            status = FWR_E_FAULT;
        }
        if (is_busy(channel)) {
            sleep_while_busy(channel);
        } else if (copy->left != 0) {
            begin_list(channel);
        } else {
            break;
        }
    }
    order_memory();
    MAINTAIN(invalidate, copy->destination, copy->size);
    copy->size = 0;
    return status;
}

int32_t fwr_port_copy_start(uint32_t channel, void *to, const void *from, uint32_t size)
{
    const int32_t status = finish(channel);
    if (status != FWR_OK) {
        return status;
    }
    struct copy *copy = &copies[channel];
    copy->from = (uint32_t)from;
    copy->to = (uint32_t)to;
    copy->left = size;
    copy->destination = copy->to;
    copy->size = size;
    MAINTAIN(clean, copy->from, size);
    MAINTAIN(clean_invalidate, copy->to, size);
    if (size != 0) {
        begin_list(channel);
    }
    return FWR_OK;
}

int32_t fwr_port_copy_wait(uint32_t channel)
{
    return finish(channel);
}

#if FWR_PRIVATE_IO
int32_t fwr_port_pool_write(void *pool, const void *from, uint32_t size)
{
    const int32_t status = fwr_port_copy_start(0, pool, from, size);
    return status == FWR_OK ? finish(0) : status;
}

int32_t fwr_port_pool_read(void *to, const void *pool, uint32_t size)
{
    return fwr_port_pool_write(to, pool, size);
}
#endif
