/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_probe.c: see fwr_probe.h. */
#include "fwr_probe.h"

#include "fwr.h"
#include "fwr_guard.h"
#include "fwr_link.h"
#include "fwr_server.h"
#include "port/fwr_port.h"

#if FWR_PROFILE

#define CALIBRATION_PAIRS 64u

/* Static, since probes have no context argument; only one model runs at a time. */
static struct {
#if FWR_GUARDS
    const struct fwr_model *model;
#endif
    struct fwr_operator *operators;
    uint64_t begin;
    uint32_t operator_count;
    uint32_t pair_cost; /* ticks */
    uint32_t current;
    bool with_checksums;
} probe = {.current = FWR_PROBE_NO_OPERATOR};

/* Checks the guard bytes around the pools in a debug image. */
static void check_guards(void)
{
#if FWR_GUARDS
    if (probe.model) {
        fwr_guard_check(probe.model);
    }
#endif
}

static void feed_watchdog(void)
{
#if FWR_WATCHDOG
    fwr_port_watchdog_kick();
#endif
}

void fwr_probe(uint32_t operator_index, uint32_t phase, const void *data, uint32_t size_bytes)
{
    if (phase == 0) {
        check_guards();
        feed_watchdog();
        probe.current = operator_index;
        probe.begin = fwr_port_counter();
        return;
    }
    uint64_t ticks = fwr_port_counter() - probe.begin;
    check_guards();
    probe.current = FWR_PROBE_NO_OPERATOR;
    if (operator_index >= probe.operator_count) {
        return;
    }
    struct fwr_operator *record = &probe.operators[operator_index];
    record->count += ticks > probe.pair_cost ? ticks - probe.pair_cost : 0;
    record->calls++;
    if (probe.with_checksums) {
        record->checksum = fwr_link_crc32(record->checksum, data, size_bytes);
    }
    if (data != 0) {
        fwr_server_tap(operator_index, data, size_bytes);
    }
}

void fwr_probe_start(const struct fwr_model *model, bool with_checksums)
{
    struct fwr_operator cost = {0, 0, 0};
    probe.operators = &cost;
    probe.operator_count = 1;
    probe.pair_cost = 0;
    probe.with_checksums = false;
    for (uint32_t i = 0; i < CALIBRATION_PAIRS; i++) {
        fwr_probe(0, 0, 0, 0);
        fwr_probe(0, 1, 0, 0);
    }
    /* The mean: with coarse ticks, a single pair may show no cost. */
    probe.pair_cost = (uint32_t)((cost.count + CALIBRATION_PAIRS / 2u) / CALIBRATION_PAIRS);
#if FWR_GUARDS
    probe.model = model;
#endif
    probe.operators = model->operators;
    probe.operator_count = model->operators ? model->operator_count : 0;
    probe.with_checksums = with_checksums;
    for (uint32_t i = 0; i < probe.operator_count; i++) {
        probe.operators[i].count = 0;
        probe.operators[i].calls = 0;
        probe.operators[i].checksum = 0;
    }
}

uint32_t fwr_probe_current(void)
{
    return probe.current;
}

#if FWR_WATCHDOG
void fwr_probe_set_current(uint32_t operator_index)
{
    probe.current = operator_index;
}
#endif

#else

void fwr_probe_start(const struct fwr_model *model, bool with_checksums)
{
    (void)model;
    (void)with_checksums;
}

#if FWR_WATCHDOG

/* Without profiling, only track the current operator and kick the watchdog. */
static uint32_t current = FWR_PROBE_NO_OPERATOR;

void fwr_probe(uint32_t operator_index, uint32_t phase, const void *data, uint32_t size_bytes)
{
    (void)data;
    (void)size_bytes;
    current = phase == 0 ? operator_index : FWR_PROBE_NO_OPERATOR;
    fwr_port_watchdog_kick();
}

uint32_t fwr_probe_current(void)
{
    return current;
}

void fwr_probe_set_current(uint32_t operator_index)
{
    current = operator_index;
}

#else

uint32_t fwr_probe_current(void)
{
    return FWR_PROBE_NO_OPERATOR;
}

#endif

#endif
