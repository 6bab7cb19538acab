/* SPDX-License-Identifier: Apache-2.0 */
/* ethosu_semaphore.c: the semaphores of Arm's driver without a heap. */
#include "ethosu_driver.h"

#include <cmsis_compiler.h>
#include <stddef.h>
#include <stdint.h>

#define SEMAPHORES 4 /* two for each NPU, and one of all */

static volatile uint32_t counts[SEMAPHORES];
static uint32_t used;

void *ethosu_semaphore_create(void)
{
    return used < SEMAPHORES ? (void *)&counts[used++] : NULL;
}

void ethosu_semaphore_destroy(void *semaphore)
{
    (void)semaphore;
}

int ethosu_semaphore_take(void *semaphore, uint64_t timeout)
{
    volatile uint32_t *count = semaphore;
    (void)timeout;
    while (*count == 0u) {
        __WFE();
    }
    --*count;
    return 0;
}

int ethosu_semaphore_give(void *semaphore)
{
    volatile uint32_t *count = semaphore;
    ++*count;
    __SEV();
    return 0;
}
