/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server.c: serves the link's requests for one model.
 *
 * A run is executed once; a repeated request returns the saved result. All other requests are
 * idempotent, and older ones are ignored. An output is valid only after a run on the inputs as
 * written. Between the runs of one request the link is polled, so that an absent host does not
 * delay the next one.
 */
#include "fwr_server.h"

#include "fwr.h"
#include "fwr_guard.h"
#include "fwr_link.h"
#include "fwr_server_internal.h"
#include "fwr_server_watchdog.h"
#include "fwr_stack.h"
#include "port/fwr_port.h"

/* Upper bound for requests of any size. */
#define ANY 0xffu

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
    case FWR_IDENTITY:
        return fwr_server_do_identity(data);
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
    [FWR_HELLO - 1] = {0, ANY},        [FWR_TEXT - 1] = {7, 7},
    [FWR_TENSOR - 1] = {3, 3},         [FWR_WRITE_INPUT - 1] = {6, ANY},
    [FWR_WRITE_PARAMS - 1] = {4, ANY}, [FWR_RUN - 1] = {5, 7},
    [FWR_READ_OUTPUT - 1] = {8, 8},    [FWR_PROFILE_READ - 1] = {4, 4},
    [FWR_STACK - 1] = {0, ANY},        [FWR_RESET - 1] = {0, ANY},
    [FWR_BAUD - 1] = {4, 4},
#if FWR_PROFILE
    [FWR_STEP - 1] = {0, ANY},         [FWR_TAP_READ - 1] = {0, ANY},
    [FWR_IDENTITY - 1] = {0, ANY},
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
    fwr_server_adopt_sequence();
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
    fwr_server_send_unasked(FWR_KIND_STARTED);
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
