/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server_frames.c: the server's state; receives, classifies and sends frames. See
 * fwr_server_internal.h.
 */
#include <string.h>

#include "fwr.h"
#include "fwr_link.h"
#include "fwr_server.h"
#include "fwr_server_internal.h"
#include "port/fwr_port.h"

/* After this many bytes without a valid frame, assume the host left and restore the default baud
 * rate. */
#define BAUD_FALLBACK_BYTES (FWR_LINK_FRAME_MAX + 256u)

struct fwr_server fwr_server;

/* ---- Sending ------------------------------------------------------------------------------- */

/* Sends a frame without payload, with the session and sequence that begin `header`. */
static void send_short(const uint8_t *header, uint8_t kind, enum fwr_status status)
{
    uint8_t frame[FWR_LINK_HEADER + FWR_LINK_CRC];
    memcpy(frame, header, FWR_LINK_KIND);
    frame[FWR_LINK_KIND] = kind;
    frame[FWR_LINK_STATUS] = (uint8_t)status;
    fwr_link_close(frame, FWR_LINK_HEADER);
    fwr_link_send(frame, FWR_LINK_HEADER);
}

void fwr_server_send_unasked(uint8_t kind)
{
    static const uint8_t no_session[FWR_LINK_KIND] = {0};
    send_short(no_session, kind, FWR_OK);
}

void fwr_server_send_busy(void)
{
    send_short(fwr_server.link.rx, FWR_RUN | FWR_KIND_ANSWER, FWR_BUSY);
}

void fwr_server_reply(uint8_t kind, int32_t status, uint32_t size)
{
    uint8_t *frame = fwr_server.link.rx;
    uint32_t end = FWR_LINK_HEADER + size;
    frame[FWR_LINK_KIND] = kind;
    frame[FWR_LINK_STATUS] = (uint8_t)status;
    fwr_server.link.done = true; /* the answer has overwritten any partial frame */
    fwr_link_put(&frame[FWR_LINK_SESSION], fwr_server.session, 2);
    fwr_link_put(&frame[FWR_LINK_SEQUENCE], fwr_server.sequence, 2);
    fwr_link_close(frame, end);
    fwr_link_send(frame, end);
}

/* ---- Frame classification -------------------------------------------------------------------- */

bool fwr_server_receive_byte(uint8_t byte)
{
    enum fwr_link_event event = fwr_link_feed(&fwr_server.link, byte);
    if (event == FWR_LINK_FRAME) {
        fwr_server.bytes_since_frame = 0;
        return true;
    }
    if (fwr_server.bytes_since_frame < BAUD_FALLBACK_BYTES) {
        fwr_server.bytes_since_frame++;
    } else if (fwr_server.baud_changed) {
        fwr_server.baud_changed = false;
        (void)fwr_port_set_baud(0, 1);
    }
    if (event == FWR_LINK_DAMAGED) {
        fwr_server_send_unasked(FWR_KIND_DAMAGED);
    }
    return false;
}

enum fwr_frame_class fwr_server_classify_frame(void)
{
    const uint8_t *frame = fwr_server.link.rx;
    uint8_t kind = frame[FWR_LINK_KIND];
    uint16_t session = (uint16_t)fwr_link_get(&frame[FWR_LINK_SESSION], 2);
    uint16_t sequence = (uint16_t)fwr_link_get(&frame[FWR_LINK_SEQUENCE], 2);
    uint16_t ahead = (uint16_t)(sequence - fwr_server.sequence);
    if (kind & FWR_KIND_ANSWER) {
        return FWR_FRAME_STALE;
    }
    if (session == 0 || session != fwr_server.session) {
        if (kind == FWR_HELLO && session != 0) {
            return FWR_FRAME_NEW_SESSION;
        }
        send_short(frame, (uint8_t)(kind | FWR_KIND_ANSWER), FWR_E_SESSION);
        return FWR_FRAME_WRONG_SESSION;
    }
    if (ahead >= 0x8000u) {
        return FWR_FRAME_STALE;
    }
    return ahead == 0 ? FWR_FRAME_RETRANSMIT : FWR_FRAME_NEXT;
}

void fwr_server_adopt_sequence(void)
{
    const uint8_t *frame = fwr_server.link.rx;
    fwr_server.session = (uint16_t)fwr_link_get(&frame[FWR_LINK_SESSION], 2);
    fwr_server.sequence = (uint16_t)fwr_link_get(&frame[FWR_LINK_SEQUENCE], 2);
}
