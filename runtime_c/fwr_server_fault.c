/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server_fault.c: reports faults to the host. See fwr_server_internal.h. */
#include "fwr.h"
#include "fwr_link.h"
#include "fwr_probe.h"
#include "fwr_server.h"
#include "fwr_server_internal.h"
#include "fwr_server_watchdog.h"
#include "port/fwr_port.h"

void fwr_server_send_fault(const struct fwr_fault *fault)
{
    uint8_t *payload = &fwr_server.link.rx[FWR_LINK_HEADER];
    fwr_link_put(&payload[0], fault->family, 2);
    fwr_link_put(&payload[2], fwr_probe_current(), 2);
    fwr_link_put(&payload[4], fwr_server_stack_used(), 4);
    fwr_link_put_all(&payload[8], fault->words, FWR_FAULT_WORDS, 4);
    fwr_server_reply(FWR_KIND_FAULT, FWR_E_FAULT, 8u + 4u * FWR_FAULT_WORDS);
}

static void await_frame(void)
{
    int32_t byte;
    do {
        byte = fwr_server_poll_byte();
    } while (byte < 0 || fwr_link_feed(&fwr_server.link, (uint8_t)byte) != FWR_LINK_FRAME);
}

FWR_NORETURN void fwr_fault(const struct fwr_fault *fault)
{
    for (;;) {
        fwr_server_send_fault(fault);
        await_frame();
        fwr_server_adopt_sequence();
        if (fwr_server.link.rx[FWR_LINK_KIND] == FWR_RESET) {
            fwr_server_reply(FWR_RESET | FWR_KIND_ANSWER, FWR_OK, 0);
            fwr_port_reset();
        }
    }
}
