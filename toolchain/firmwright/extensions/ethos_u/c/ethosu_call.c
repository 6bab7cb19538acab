/* SPDX-License-Identifier: Apache-2.0 */
/* ethosu_call.c: one call in flight on the NPU that ethosu_reserve_driver() returns. */
#include "ethosu_call.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "ethosu_driver.h"

#define REGIONS 3 /* weights, arena, fast memory: the numbers that Vela uses */

static struct {
    struct ethosu_driver *driver; /* NULL: no call is in flight */
    uint8_t *arena;
    uint32_t output_count;
    struct ethosu_call_output outputs[ETHOSU_CALL_OUTPUTS_MAX];
    uint64_t bases[REGIONS]; /* read by the driver until the call ends */
    size_t sizes[REGIONS];
    bool failed;
} now;

/* Data cache of Cortex-M7, M55 and M85 (Armv7-M architecture, B2.2; Armv8-M, B11.20). */
#if defined(__ARM_ARCH_7EM__) || defined(__ARM_ARCH_8_1M_MAIN__)
#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SCB_CCR REGISTER(0xE000ED14u)
#define SCB_DCIMVAC REGISTER(0xE000EF5Cu)
#define SCB_DCCIMVAC REGISTER(0xE000EF70u)
#define CCR_DATA_CACHE (1u << 16)
#define LINE 32u

static void maintain(volatile uint32_t *operation, const uint8_t *data, uint32_t size)
{
    const uintptr_t start = (uintptr_t)data & ~(uintptr_t)(LINE - 1u);
    if ((SCB_CCR & CCR_DATA_CACHE) == 0u) {
        return;
    }
    __asm__ volatile("dsb" ::: "memory");
    for (uintptr_t line = start; line < (uintptr_t)data + size; line += LINE) {
        *operation = (uint32_t)line;
    }
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}

static void clean(const uint8_t *data, uint32_t size)
{
    maintain(&SCB_DCCIMVAC, data, size);
}

static void invalidate(const uint8_t *data, uint32_t size)
{
    maintain(&SCB_DCIMVAC, data, size);
}
#else
static void clean(const uint8_t *data, uint32_t size)
{
    (void)data;
    (void)size;
}

static void invalidate(const uint8_t *data, uint32_t size)
{
    (void)data;
    (void)size;
}
#endif

static void finish(void)
{
    if (now.driver == NULL) {
        return;
    }
    if (ethosu_wait(now.driver, true) != 0) {
        now.failed = true;
    }
    ethosu_release_driver(now.driver);
    now.driver = NULL;
    for (int region = 1; region < REGIONS; region++) {
        invalidate((const uint8_t *)(uintptr_t)now.bases[region], (uint32_t)now.sizes[region]);
    }
    for (uint32_t i = 0; i < now.output_count; i++) {
        const struct ethosu_call_output *tensor = &now.outputs[i];
        if (tensor->data != now.arena + tensor->offset) {
            memcpy(tensor->data, now.arena + tensor->offset, tensor->size);
        }
    }
}

void ethosu_call_start(const struct ethosu_call *call)
{
    finish();
    if (call->output_count > ETHOSU_CALL_OUTPUTS_MAX) {
        now.failed = true;
        return;
    }
    for (uint32_t i = 0; i < call->input_count; i++) {
        const struct ethosu_call_input *tensor = &call->inputs[i];
        if (tensor->data != call->arena + tensor->offset) {
            memcpy(call->arena + tensor->offset, tensor->data, tensor->size);
        }
    }
    now.arena = call->arena;
    now.output_count = call->output_count;
    for (uint32_t i = 0; i < call->output_count; i++) {
        now.outputs[i] = call->outputs[i];
    }
    now.bases[0] = (uintptr_t)call->weights;
    now.bases[1] = (uintptr_t)call->arena;
    now.bases[2] = (uintptr_t)(call->fast_size != 0u ? call->fast : call->arena);
    now.sizes[0] = call->weights_size;
    now.sizes[1] = call->arena_size;
    now.sizes[2] = call->fast_size != 0u ? call->fast_size : call->arena_size;
    for (int region = 1; region < REGIONS; region++) {
        clean((const uint8_t *)(uintptr_t)now.bases[region], (uint32_t)now.sizes[region]);
    }
    now.driver = ethosu_reserve_driver();
    if (ethosu_invoke_async(now.driver, call->commands, (int)call->commands_size, now.bases,
                            now.sizes, REGIONS, NULL) != 0) {
        ethosu_release_driver(now.driver);
        now.driver = NULL;
        now.failed = true;
    }
}

int32_t ethosu_call_wait(void)
{
    finish();
    const bool failed = now.failed;
    now.failed = false;
    return failed ? -1 : 0;
}
