/* simulated_port.c: a port without time: a test passes each byte and receives the firmware's
 * output. A restart ends the current call; the test then reloads the library.
 */
#include <setjmp.h>

#include "fwr.h"
#include "port/fwr_port.h"

#define OUT_MAX 70000u

uint8_t sim_out[OUT_MAX];
uint32_t sim_out_size;
uint32_t sim_baud; /* 0: rate at start-up */
int32_t sim_has_baud;
uint32_t sim_receive_bytes;
uint32_t sim_marks; /* runs started; the highest bit is set during a run */

void sim_start(void);
int sim_take(uint8_t byte);

static jmp_buf restart;
static struct fwr_port_info info = {"simulated", "", "ticks", 1, 1, 0, 0, 0};

void fwr_port_init(void)
{
    info.receive_bytes = sim_receive_bytes;
}

const struct fwr_port_info *fwr_port_info(void)
{
    return &info;
}

int32_t fwr_port_byte_in(void)
{
    return -1;
}

void fwr_port_byte_out(uint8_t byte)
{
    if (sim_out_size < OUT_MAX) {
        sim_out[sim_out_size++] = byte;
    }
}

uint64_t fwr_port_counter(void)
{
    return 0;
}

void fwr_port_counter_align(void) {}

int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    if (!sim_has_baud) {
        return FWR_E_UNSUPPORTED;
    }
    if (now) {
        sim_baud = baud;
    }
    return FWR_OK;
}

void fwr_port_trace_pin(int running)
{
    sim_marks = running ? (sim_marks + 1u) | 0x80000000u : sim_marks & 0x7fffffffu;
}

FWR_NORETURN void fwr_port_reset(void)
{
    longjmp(restart, 1);
}

FWR_NORETURN void fwr_port_fatal(void)
{
    longjmp(restart, 1);
}

void sim_start(void)
{
    fwr_server_start(&fwr_app_model);
}

/* Returns whether the firmware continues; otherwise it requested a restart. */
int sim_take(uint8_t byte)
{
    if (setjmp(restart) != 0) {
        return 0;
    }
    fwr_server_feed(byte);
    return 1;
}
