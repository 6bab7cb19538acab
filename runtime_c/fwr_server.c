/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server.c: serves the link's requests for one model.
 *
 * A run is executed once; a repeated request returns the saved result. All other requests are
 * idempotent, and older ones are ignored. An output is valid only after a run on the inputs as
 * written. Between the runs of one request the link is polled, so that an absent host does not
 * delay the next one.
 */
#include "fwr_server.h"

#include <string.h>

#include "fwr.h"
#include "fwr_guard.h"
#include "fwr_link.h"
#include "fwr_probe.h"
#include "fwr_server_internal.h"
#include "fwr_server_watchdog.h"
#include "fwr_stack.h"
#include "port/fwr_port.h"

/* After this many bytes without a valid frame, assume the host left and restore the default baud
 * rate. */
#define BAUD_FALLBACK_BYTES (FWR_LINK_FRAME_MAX + 256u)

/* Upper bound for requests of any size. */
#define ANY 0xffu

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

static void send_unasked(uint8_t kind)
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
        send_unasked(FWR_KIND_DAMAGED);
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

/* Uses the frame's session and sequence for the following answers. */
static void adopt_sequence(void)
{
    const uint8_t *frame = fwr_server.link.rx;
    fwr_server.session = (uint16_t)fwr_link_get(&frame[FWR_LINK_SESSION], 2);
    fwr_server.sequence = (uint16_t)fwr_link_get(&frame[FWR_LINK_SEQUENCE], 2);
}

/* ---- Requests ------------------------------------------------------------------------------ */

/* Checks the rate; the switch follows after the answer. */
static int32_t do_baud(const uint8_t *data)
{
    return fwr_port_set_baud(fwr_link_get(data, 4), 0) == 0 ? 0 : FWR_E_UNSUPPORTED;
}

/* A switch instead of a function table, so that stack analysis can follow the calls. */
static int32_t dispatch(uint8_t command, uint8_t *data)
{
    switch (command) {
    case FWR_HELLO:
        return fwr_server_do_hello(data);
    case FWR_TEXT:
        return fwr_server_do_text(data);
    case FWR_TENSOR:
        return fwr_server_do_tensor(data);
    case FWR_WRITE_INPUT:
        return fwr_server_do_write_input(data);
    case FWR_WRITE_PARAMS:
        return fwr_server_do_write_params(data);
    case FWR_RUN:
        return fwr_server_do_run(data);
    case FWR_READ_OUTPUT:
        return fwr_server_do_read_output(data);
    case FWR_PROFILE_READ:
        return fwr_server_do_profile(data);
    case FWR_STACK:
        return fwr_server_do_stack(data);
    case FWR_RESET:
        return 0;
    case FWR_BAUD:
        return do_baud(data);
#if FWR_PROFILE
    case FWR_STEP:
        return fwr_server_do_step(data);
#endif
    default:
        return FWR_E_COMMAND;
    }
}

/* Least and most bytes of each command's payload. */
static const struct {
    uint8_t least;
    uint8_t most;
} sizes[] = {
    [FWR_HELLO - 1] = {0, ANY},       [FWR_TEXT - 1] = {7, 7},           [FWR_TENSOR - 1] = {3, 3},
    [FWR_WRITE_INPUT - 1] = {6, ANY}, [FWR_WRITE_PARAMS - 1] = {4, ANY}, [FWR_RUN - 1] = {5, 7},
    [FWR_READ_OUTPUT - 1] = {8, 8},   [FWR_PROFILE_READ - 1] = {4, 4},   [FWR_STACK - 1] = {0, ANY},
    [FWR_RESET - 1] = {0, ANY},       [FWR_BAUD - 1] = {4, 4},
#if FWR_PROFILE
    [FWR_STEP - 1] = {0, ANY},
#endif
};

static bool payload_size_ok(uint8_t command)
{
    uint32_t at = command - 1u;
    uint32_t size = fwr_server_request_size() < ANY ? fwr_server_request_size() : ANY;
    return at >= sizeof sizes / sizeof sizes[0] ||
           /* cppcheck-suppress knownConditionTrueFalse ; it takes every `most` for ANY */
           (size >= sizes[at].least && size <= sizes[at].most);
}

static void answer_request(void)
{
    uint8_t *frame = fwr_server.link.rx;
    uint8_t command = frame[FWR_LINK_KIND];
    uint32_t baud = fwr_link_get(&frame[FWR_LINK_HEADER], 4);
    int32_t status =
        payload_size_ok(command) ? dispatch(command, &frame[FWR_LINK_HEADER]) : FWR_E_SIZE;
    uint32_t size = 0;
    if (status > 0) { /* a size; the answer of a failed run has a payload too */
        size = (uint32_t)status;
        status = fwr_server.has_run && fwr_server.result.status != 0 ? FWR_E_RUN : FWR_OK;
    }
#if FWR_PROFILE
    if (fwr_server.pending_reply_cmd != 0) {
        command = fwr_server.pending_reply_cmd; /* the end of the run answers the last step */
        fwr_server.pending_reply_cmd = 0;
    }
#endif
    if (fwr_server.interrupted) {
        return;
    }
    fwr_server_reply((uint8_t)(command | FWR_KIND_ANSWER), status, size);
    if (command == FWR_RESET) {
        fwr_port_reset();
    }
    if (command == FWR_BAUD && status == FWR_OK) {
        fwr_server.baud_changed = fwr_port_set_baud(baud, 1) == 0;
    }
}

static void handle_frame(void)
{
    fwr_server.interrupted = false;
    switch (fwr_server_classify_frame()) {
    case FWR_FRAME_STALE:
    case FWR_FRAME_WRONG_SESSION:
        return;
    case FWR_FRAME_RETRANSMIT:
        break;
    default:
        /* FWR_STEP may still ask for the result of a paused run. */
        if (fwr_server.link.rx[FWR_LINK_KIND] != FWR_STEP) {
            fwr_server.has_run = false;
        }
        break;
    }
    adopt_sequence();
    answer_request();
}

/* ---- Main loop ------------------------------------------------------------------------------- */

void fwr_server_feed(uint8_t byte)
{
    if (!fwr_server_receive_byte(byte)) {
        return;
    }
    do {
        handle_frame();
    } while (fwr_server.interrupted);
}

void fwr_server_start(const struct fwr_model *model)
{
    FWR_ASSERT(model && model->run);
    FWR_ASSERT(model->inputs || model->input_count == 0);
    FWR_ASSERT(model->outputs || model->output_count == 0);
    FWR_ASSERT(!model->feed || (model->row && model->row_size_bytes > 0));
    fwr_port_init();
    if (fwr_port_info()->stack_low) {
        fwr_stack_paint(fwr_port_info()->stack_low);
    }
    fwr_server.model = model;
    fwr_guard_init(model);
    if (model->init) {
        model->init();
    }
    fwr_server_invalidate_inputs();
    fwr_server_calibrate();
    fwr_server_report_watchdog();
    send_unasked(FWR_KIND_STARTED);
}

void fwr_serve(const struct fwr_model *model)
{
    fwr_server_start(model);
    for (;;) {
        int32_t byte = fwr_server_poll_byte();
        if (byte >= 0) {
            fwr_server_feed((uint8_t)byte);
        }
    }
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* Sends a fault report with the session and sequence of the current request. */
static void send_fault(const struct fwr_fault *fault)
{
    uint8_t *payload = &fwr_server.link.rx[FWR_LINK_HEADER];
    fwr_link_put(&payload[0], fault->family, 2);
    fwr_link_put(&payload[2], fwr_probe_current(), 2);
    fwr_link_put(&payload[4], fwr_server_stack_used(), 4);
    fwr_link_put_all(&payload[8], fault->words, FWR_FAULT_WORDS, 4);
    fwr_server_reply(FWR_KIND_FAULT, FWR_E_FAULT, 8u + 4u * FWR_FAULT_WORDS);
}

#if FWR_WATCHDOG
void fwr_server_send_fault(const struct fwr_fault *fault)
{
    send_fault(fault);
}
#endif

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
        send_fault(fault);
        await_frame();
        adopt_sequence();
        if (fwr_server.link.rx[FWR_LINK_KIND] == FWR_RESET) {
            fwr_server_reply(FWR_RESET | FWR_KIND_ANSWER, FWR_OK, 0);
            fwr_port_reset();
        }
    }
}
