/* fwr_access_trace.h: checks every memory access of a model's C against its memory plan.
 *
 * The model is compiled with isolated buffers and with a call before each access
 * (-fsanitize=thread, without the sanitizer's library). For each byte of the real plan, the trace
 * records which buffer wrote it last: a buffer may read a byte only if it was the last to write it.
 */
#ifndef FWR_ACCESS_TRACE_H
#define FWR_ACCESS_TRACE_H

#include <stdint.h>

/* Kinds of violations. */
#define FWR_ACCESS_OUTSIDE 0     /* an access outside all buffers */
#define FWR_ACCESS_UNWRITTEN 1   /* a read of a byte that its buffer has not written */
#define FWR_ACCESS_OVERWRITTEN 2 /* a read of a byte that another buffer has overwritten */

/* A pool with isolated buffers. For each of its bytes: the buffer (from 1; 0 for none), the offset in
 * the real plan, and whether it was written. For each byte of the real plan: the last buffer to write
 * it, and the operator that did so.
 */
struct fwr_access_pool {
    const uint8_t *base;
    uint32_t bytes;
    const uint16_t *buffer;
    const uint32_t *planned;
    uint8_t *written;
    uint16_t *owner;
    int32_t *writer;
};

struct fwr_access_violation {
    int32_t kind;
    int32_t operator_index; /* -1: the caller */
    int32_t pool;
    uint32_t byte;  /* offset in the pool with isolated buffers */
    uint16_t owner; /* the buffer that overwrote it */
    int32_t writer; /* the operator that did so */
};

/* Starts tracing these pools. The caller owns the arrays. */
void fwr_access_start(const struct fwr_access_pool *pools, uint32_t count);
/* Sets the current operator; called before and after each. */
void fwr_access_set_operator(int32_t operator_index, int32_t phase);
/* Records an access by the caller: an input written or an output read. */
void fwr_access_record(const void *address, uint32_t bytes, int32_t write);
/* Returns the number of violations since the start and stores the first. */
uint32_t fwr_access_violations(struct fwr_access_violation *first);

#endif
