/* fake_port.c: a port for tests of single runtime files, with recorded output and a settable
 * counter.
 */
#include "fwr_server.h"
#include "port/fwr_port.h"

#define OUT_MAX 4096u

uint8_t fake_out[OUT_MAX];
uint32_t fake_out_size;
uint64_t fake_now;       /* counter value */
uint64_t fake_read_cost; /* ticks per read */

void fwr_port_byte_out(uint8_t byte)
{
    if (fake_out_size < OUT_MAX) {
        fake_out[fake_out_size++] = byte;
    }
}

uint64_t fwr_port_counter(void)
{
    fake_now += fake_read_cost;
    return fake_now;
}

/* Stub: runs do not pause. */
void fwr_server_tap(uint32_t operator_index, const void *data, uint32_t size_bytes)
{
    (void)operator_index;
    (void)data;
    (void)size_bytes;
}
