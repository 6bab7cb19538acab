/* fwr_access_trace.c: see fwr_access_trace.h. Implements the calls that -fsanitize=thread inserts.
 */
#include "fwr_access_trace.h"

#include <stddef.h>

static const struct fwr_access_pool *pools_traced;
static uint32_t pool_count;
static int32_t running = -1;
static uint32_t fault_count;
static struct fwr_access_violation first_fault;

void fwr_access_start(const struct fwr_access_pool *pools, uint32_t count)
{
    pools_traced = pools;
    pool_count = count;
    running = -1;
    fault_count = 0;
}

void fwr_access_set_operator(int32_t operator_index, int32_t phase)
{
    running = phase == 0 ? operator_index : -1;
}

uint32_t fwr_access_violations(struct fwr_access_violation *first)
{
    *first = first_fault;
    return fault_count;
}

static void fault(int32_t kind, uint32_t pool, uint32_t byte, uint16_t owner, int32_t writer)
{
    if (fault_count++ == 0) {
        first_fault.kind = kind;
        first_fault.operator_index = running;
        first_fault.pool = (int32_t)pool;
        first_fault.byte = byte;
        first_fault.owner = owner;
        first_fault.writer = writer;
    }
}

static void touch_byte(uint32_t number, uint32_t byte, int write)
{
    const struct fwr_access_pool *pool = &pools_traced[number];
    const uint16_t buffer = pool->buffer[byte];
    const uint32_t place = pool->planned[byte];

    if (buffer == 0) {
        fault(FWR_ACCESS_OUTSIDE, number, byte, 0, -1);
    } else if (write) {
        pool->written[byte] = 1;
        pool->owner[place] = buffer;
        pool->writer[place] = running;
    } else if (pool->written[byte] == 0) {
        fault(FWR_ACCESS_UNWRITTEN, number, byte, 0, -1);
    } else if (pool->owner[place] != buffer) {
        fault(FWR_ACCESS_OVERWRITTEN, number, byte, pool->owner[place], pool->writer[place]);
    }
}

static void touch(const void *address, size_t bytes, int write)
{
    for (uint32_t i = 0; i < pool_count; ++i) {
        const uintptr_t first = (uintptr_t)address - (uintptr_t)pools_traced[i].base;
        if (first < pools_traced[i].bytes) {
            for (size_t k = 0; k < bytes && first + k < pools_traced[i].bytes; ++k) {
                touch_byte(i, (uint32_t)(first + k), write);
            }
        }
    }
}

void fwr_access_record(const void *address, uint32_t bytes, int32_t write)
{
    touch(address, bytes, write);
}

/* ---- Called by compiler-generated code ------------------------------------------------------- */

#define ACCESS(name, bytes, write) \
    void __tsan_##name(const void *address); \
    void __tsan_##name(const void *address) { touch(address, bytes, write); }

ACCESS(read1, 1, 0)
ACCESS(read2, 2, 0)
ACCESS(read4, 4, 0)
ACCESS(read8, 8, 0)
ACCESS(read16, 16, 0)
ACCESS(write1, 1, 1)
ACCESS(write2, 2, 1)
ACCESS(write4, 4, 1)
ACCESS(write8, 8, 1)
ACCESS(write16, 16, 1)
ACCESS(unaligned_read2, 2, 0)
ACCESS(unaligned_read4, 4, 0)
ACCESS(unaligned_read8, 8, 0)
ACCESS(unaligned_read16, 16, 0)
ACCESS(unaligned_write2, 2, 1)
ACCESS(unaligned_write4, 4, 1)
ACCESS(unaligned_write8, 8, 1)
ACCESS(unaligned_write16, 16, 1)

void __tsan_read_range(const void *address, size_t bytes);
void __tsan_write_range(const void *address, size_t bytes);
void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);

void __tsan_read_range(const void *address, size_t bytes)
{
    touch(address, bytes, 0);
}

void __tsan_write_range(const void *address, size_t bytes)
{
    touch(address, bytes, 1);
}

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
    (void)caller;
}

void __tsan_func_exit(void)
{
}
