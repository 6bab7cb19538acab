/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_probe.h: what the model's probes do in a profile image: count each operator. In a release
 * image with a watchdog they feed it.
 *
 * The model is compiled with -DNAME_PROBE_HEADER="\"fwr_probe.h\"" -DNAME_PROBE=FWR_PROBE, and
 * everything with -DFWR_PROFILE=1. Without these the probes are nothing.
 */
#ifndef FWR_PROBE_H
#define FWR_PROBE_H

#include <stdint.h>

struct fwr_model;

#define FWR_PROBE_NO_OPERATOR 0xffffu

/* phase 0 before the operator's call, 1 after; data and size_bytes are its first output. */
#define FWR_PROBE(operator_index, phase, data, size_bytes) \
    fwr_probe((uint32_t)(operator_index), (uint32_t)(phase), (data), (uint32_t)(size_bytes))

void fwr_probe(uint32_t operator_index, uint32_t phase, const void *data, uint32_t size_bytes);

/* Clears the model's records; measures what a probe pair around nothing costs. */
void fwr_probe_start(const struct fwr_model *model, int with_checksums);

/* The operator under way, for a fault report, or FWR_PROBE_NO_OPERATOR. */
uint32_t fwr_probe_current(void);

/* For the report of what was under way before a restart. Only with FWR_WATCHDOG. */
void fwr_probe_set_current(uint32_t operator_index);

#endif
