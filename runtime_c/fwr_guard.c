/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_guard.c: see fwr_guard.h. */
#include "fwr_guard.h"

#if FWR_GUARDS

#include "port/fwr_port.h"

#define NAME_WORD 4u /* the report's words from here hold the pool's name */

/* The pattern varies, since stray writes often repeat one value. */
static uint8_t mark(uint32_t at)
{
    return (uint8_t)(0xa5u + at);
}

void fwr_guard_init(const struct fwr_model *model)
{
    for (uint32_t i = 0; i < model->guard_count; i++) {
        const struct fwr_guarded_pool *guarded = &model->guards[i];
        FWR_ASSERT(guarded->pool);
        for (uint32_t at = 0; at < FWR_GUARD_BYTES; at++) {
            guarded->pool[-1 - (int32_t)at] = mark(at);
            guarded->pool[guarded->size_bytes + at] = mark(at);
        }
    }
}

static void put_name(uint32_t *words, const char *name)
{
    for (uint32_t i = 0; i < 4u * (FWR_FAULT_WORDS - NAME_WORD) && name[i] != 0; i++) {
        words[i / 4u] |= (uint32_t)(uint8_t)name[i] << (8u * (i % 4u));
    }
}

/* `edge` is the byte next to the pool, `step` points away from it. */
static void check_side(const struct fwr_guarded_pool *guarded, const uint8_t *edge, int32_t step)
{
    struct fwr_fault fault = {FWR_FAULT_GUARD, {0}};
    for (uint32_t at = FWR_GUARD_BYTES; at-- > 0;) {
        const uint8_t *byte = &edge[(int32_t)at * step];
        if (*byte != mark(at)) {
            fault.words[1] = at;
            fault.words[2]++;
            fault.words[3] = (uint32_t)(uintptr_t)byte;
        }
    }
    if (fault.words[2] > 0) {
        fault.words[0] = step < 0;
        put_name(&fault.words[NAME_WORD], guarded->name);
        fwr_fault(&fault);
    }
}

void fwr_guard_check(const struct fwr_model *model)
{
    for (uint32_t i = 0; i < model->guard_count; i++) {
        const struct fwr_guarded_pool *guarded = &model->guards[i];
        check_side(guarded, guarded->pool - 1, -1);
        check_side(guarded, guarded->pool + guarded->size_bytes, 1);
    }
}

#else
typedef int fwr_guard_is_off; /* C99 requires a declaration in every file */
#endif
