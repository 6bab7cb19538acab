/* fwr_access_trace.h: holds every access of a model's C against its memory plan.
 *
 * The model is compiled so that its buffers share nothing, and so that the compiler calls a function
 * before each access to memory (-fsanitize=thread, without that sanitizer's library). For each byte
 * of the real plan the watch knows which buffer wrote it last: a buffer may read a byte only if it
 * wrote it itself and nobody has since.
 */
#ifndef FWR_ACCESS_TRACE_H
#define FWR_ACCESS_TRACE_H

#include <stdint.h>

/* What a fault is. */
#define FWR_ACCESS_OUTSIDE 0     /* an access to no buffer */
#define FWR_ACCESS_UNWRITTEN 1   /* a byte that its buffer has not written is read */
#define FWR_ACCESS_OVERWRITTEN 2 /* a byte is read that another buffer has overwritten */

/* A pool: for each of its bytes as it lies apart the buffer (counted from 1, 0 for none), the byte's
 * place in the plan and whether it was written; for each byte of the plan the last buffer to write it
 * and the operator that did.
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
    uint32_t byte;  /* of the pool as it lies apart */
    uint16_t owner; /* who overwrote it, */
    int32_t writer; /* and in which operator */
};

/* Watch these pools from now on. Arrays are the caller's. */
void fwr_access_start(const struct fwr_access_pool *pools, uint32_t count);
/* The operators that follow; before and after each. */
void fwr_access_set_operator(int32_t operator_index, int32_t phase);
/* An access by the caller: an input written, an output read. */
void fwr_access_record(const void *address, uint32_t bytes, int32_t write);
/* How many faults there were since the start; the first is stored. */
uint32_t fwr_access_violations(struct fwr_access_violation *first);

#endif
