/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_probe.h: the probes of a profile image, which measure each operator. In a release image with
 * a watchdog they kick it.
 *
 * Compile the model with -DNAME_PROBE_HEADER="\"fwr_probe.h\"" -DNAME_PROBE=FWR_PROBE, and all
 * files with -DFWR_PROFILE=1. By default the probes are empty.
 */
#ifndef FWR_PROBE_H
#define FWR_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct fwr_model;

#define FWR_PROBE_NO_OPERATOR 0xffffu

/* phase: 0 before the operator, 1 after it; data and size_bytes describe its first output. */
#define FWR_PROBE(operator_index, phase, data, size_bytes) \
    fwr_probe((uint32_t)(operator_index), (uint32_t)(phase), (data), (uint32_t)(size_bytes))

void fwr_probe(uint32_t operator_index, uint32_t phase, const void *data, uint32_t size_bytes);

/* Clears the operator records and measures the cost of an empty probe pair. */
void fwr_probe_start(const struct fwr_model *model, bool with_checksums);

/* Returns the current operator or FWR_PROBE_NO_OPERATOR. */
uint32_t fwr_probe_current(void);

/* Sets the current operator for the report after a restart. Only with FWR_WATCHDOG. */
void fwr_probe_set_current(uint32_t operator_index);

#endif
