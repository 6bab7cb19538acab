/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_loop.c: answers the link's requests for one model.
 *
 * Each run is carried out once: a repeated request gets its kept result again. All others change
 * nothing when they are carried out twice in a row, and an older one is ignored. The output can be
 * read only if a run stood on the inputs as written. Between two runs of one request the line is
 * heard, so that a host that vanished does not keep the next one waiting.
 */
#include "fwr_loop.h"

#include <string.h>

#include "fwr.h"
#include "fwr_fence.h"
#include "fwr_link.h"
#include "fwr_loop_parts.h"
#include "fwr_loop_watch.h"
#include "fwr_probe.h"
#include "fwr_stack.h"
#include "port/fwr_port.h"

/* So many bytes without a sound frame: at another baud than that of start-up, the host has left. */
#define STRANGE_BYTES_MAX (FWR_LINK_FRAME_MAX + 256u)

/* What a request has at most that may have any number of bytes. */
#define ANY 0xffu

struct fwr_served fwr_served;

/* ---- Sending ------------------------------------------------------------------------------- */

/* A frame without payload, with session and sequence of `header`. */
static void send_short(const uint8_t *header, uint8_t kind, enum fwr_status status)
{
    uint8_t frame[FWR_LINK_HEADER + FWR_LINK_CRC];
    memcpy(frame, header, 4);
    frame[4] = kind;
    frame[5] = (uint8_t)status;
    fwr_link_close(frame, FWR_LINK_HEADER);
    fwr_link_send(frame, FWR_LINK_HEADER);
}

static void send_unasked(uint8_t kind)
{
    static const uint8_t no_session[4] = {0, 0, 0, 0};
    send_short(no_session, kind, FWR_OK);
}

void fwr_loop_say_busy(void)
{
    send_short(fwr_served.link.rx, FWR_RUN | FWR_KIND_ANSWER, FWR_BUSY);
}

void fwr_loop_answer(uint8_t kind, int32_t reply)
{
    uint8_t *frame = fwr_served.link.rx;
    uint32_t end = FWR_LINK_HEADER + (reply < 0 ? 0 : (uint32_t)reply & 0xffffu);
    frame[4] = kind;
    frame[5] = (uint8_t)(reply < 0 ? reply : reply >> 16);
    fwr_served.link.done = 1; /* of a frame that was coming in, the answer has taken the place */
    fwr_link_put(&frame[0], fwr_served.session, 2);
    fwr_link_put(&frame[2], fwr_served.sequence, 2);
    fwr_link_close(frame, end);
    fwr_link_send(frame, end);
}

/* ---- Whose frame it is --------------------------------------------------------------------- */

int fwr_loop_hear(uint8_t byte)
{
    enum fwr_link_event event = fwr_link_feed(&fwr_served.link, byte);
    if (event == FWR_LINK_FRAME) {
        fwr_served.strange = 0;
        return 1;
    }
    if (fwr_served.strange < STRANGE_BYTES_MAX) {
        fwr_served.strange++;
    } else if (fwr_served.baud_changed) {
        fwr_served.baud_changed = 0;
        (void)fwr_port_set_baud(0, 1);
    }
    if (event == FWR_LINK_DAMAGED) {
        send_unasked(FWR_KIND_DAMAGED);
    }
    return 0;
}

enum fwr_standing fwr_loop_judge(void)
{
    const uint8_t *frame = fwr_served.link.rx;
    uint16_t session = (uint16_t)fwr_link_get(&frame[0], 2);
    uint16_t ahead = (uint16_t)(fwr_link_get(&frame[2], 2) - fwr_served.sequence);
    if (frame[4] & FWR_KIND_ANSWER) {
        return FWR_LATE;
    }
    if (session == 0 || session != fwr_served.session) {
        if (frame[4] == FWR_HELLO && session != 0) {
            return FWR_TAKE_OVER;
        }
        send_short(frame, (uint8_t)(frame[4] | FWR_KIND_ANSWER), FWR_E_SESSION);
        return FWR_FOREIGN;
    }
    if (ahead >= 0x8000u) {
        return FWR_LATE;
    }
    return ahead == 0 ? FWR_AGAIN : FWR_NEWER;
}

/* Answers bear these numbers from now on. */
static void take_numbers(void)
{
    const uint8_t *frame = fwr_served.link.rx;
    fwr_served.session = (uint16_t)fwr_link_get(&frame[0], 2);
    fwr_served.sequence = (uint16_t)fwr_link_get(&frame[2], 2);
}

/* ---- Requests ------------------------------------------------------------------------------ */

/* Whether the port can; the switch itself comes after the answer. */
static int32_t do_baud(uint8_t *data)
{
    return fwr_port_set_baud(fwr_link_get(data, 4), 0) == 0 ? 0 : FWR_E_UNSUPPORTED;
}

/* A switch, not a table of functions: the build reads from the calls how deep the stack may go. */
static int32_t carry_out(uint8_t command, uint8_t *data)
{
    switch (command) {
    case FWR_HELLO:
        return fwr_loop_do_hello(data);
    case FWR_TEXT:
        return fwr_loop_do_text(data);
    case FWR_TENSOR:
        return fwr_loop_do_tensor(data);
    case FWR_WRITE_INPUT:
        return fwr_loop_do_write_input(data);
    case FWR_WRITE_PARAMS:
        return fwr_loop_do_write_params(data);
    case FWR_RUN:
        return fwr_loop_do_run(data);
    case FWR_READ_OUTPUT:
        return fwr_loop_do_read_output(data);
    case FWR_PROFILE_READ:
        return fwr_loop_do_profile(data);
    case FWR_STACK:
        return fwr_loop_do_stack(data);
    case FWR_RESET:
        return 0;
    case FWR_BAUD:
        return do_baud(data);
#if FWR_PROFILE
    case FWR_STEP:
        return fwr_loop_do_step(data);
#endif
    default:
        return FWR_E_COMMAND;
    }
}

/* How many bytes the payload of each command has, from hello on. */
static const struct {
    uint8_t least;
    uint8_t most;
} sizes[] = {
    {0, ANY}, {7, 7}, {3, 3},   {6, ANY}, {4, ANY}, {5, 7}, /* run */
    {8, 8},   {4, 4}, {0, ANY}, {0, ANY}, {4, 4},           /* baud */
};

static int has_its_size(uint8_t command)
{
    uint32_t at = command - 1u;
    uint32_t size = fwr_loop_request_size() < ANY ? fwr_loop_request_size() : ANY;
    return at >= sizeof sizes / sizeof sizes[0] ||
           /* cppcheck-suppress knownConditionTrueFalse ; it takes each `most` for the first, ANY */
           (size >= sizes[at].least && size <= sizes[at].most);
}

static void answer_request(void)
{
    uint8_t *frame = fwr_served.link.rx;
    uint8_t command = frame[4];
    uint32_t baud = fwr_link_get(&frame[FWR_LINK_HEADER], 4);
    int32_t reply =
        has_its_size(command) ? carry_out(command, &frame[FWR_LINK_HEADER]) : FWR_E_SIZE;
#if FWR_PROFILE
    if (fwr_served.tap_asked != 0) {
        command = fwr_served.tap_asked; /* a run's end answers the step that led there */
        fwr_served.tap_asked = 0;
    }
#endif
    if (fwr_served.interrupted) {
        return;
    }
    fwr_loop_answer((uint8_t)(command | FWR_KIND_ANSWER), reply);
    if (command == FWR_RESET) {
        fwr_port_reset();
    }
    if (command == FWR_BAUD && reply == 0) {
        fwr_served.baud_changed = fwr_port_set_baud(baud, 1) == 0;
    }
}

static void take_frame(void)
{
    fwr_served.interrupted = 0;
    switch (fwr_loop_judge()) {
    case FWR_LATE:
    case FWR_FOREIGN:
        return;
    case FWR_AGAIN:
        break;
    default:
        /* What follows a run that paused may still ask for its end. */
        if (fwr_served.link.rx[4] != FWR_STEP) {
            fwr_served.has_run = 0;
        }
        break;
    }
    take_numbers();
    answer_request();
}

/* ---- The loop ------------------------------------------------------------------------------ */

void fwr_loop_take(uint8_t byte)
{
    if (!fwr_loop_hear(byte)) {
        return;
    }
    do {
        take_frame();
    } while (fwr_served.interrupted);
}

void fwr_loop_start(const struct fwr_model *model)
{
    fwr_port_init();
    if (fwr_port_info()->stack_low) {
        fwr_stack_paint(fwr_port_info()->stack_low);
    }
    fwr_served.model = model;
    fwr_fence_build(model);
    if (model->init) {
        model->init();
    }
    fwr_loop_require_inputs();
    fwr_loop_calibrate();
    fwr_loop_watch_tell();
    send_unasked(FWR_KIND_STARTED);
}

void fwr_loop(const struct fwr_model *model)
{
    fwr_loop_start(model);
    for (;;) {
        int32_t byte = fwr_loop_byte_in();
        if (byte >= 0) {
            fwr_loop_take((uint8_t)byte);
        }
    }
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* The report in place of the request, whose session and sequence it keeps. */
static void send_fault(const struct fwr_fault *fault)
{
    uint8_t *payload = &fwr_served.link.rx[FWR_LINK_HEADER];
    fwr_link_put(&payload[0], fault->family, 2);
    fwr_link_put(&payload[2], fwr_probe_current(), 2);
    fwr_link_put(&payload[4], fwr_loop_stack_used(), 4);
    fwr_link_put_all(&payload[8], fault->words, FWR_FAULT_WORDS, 4);
    fwr_loop_answer(FWR_KIND_FAULT, FWR_REPLY(FWR_E_FAULT, 8u + 4u * FWR_FAULT_WORDS));
}

#if FWR_WATCHDOG
void fwr_loop_send_fault(const struct fwr_fault *fault)
{
    send_fault(fault);
}
#endif

static void await_frame(void)
{
    int32_t byte;
    do {
        byte = fwr_loop_byte_in();
    } while (byte < 0 || fwr_link_feed(&fwr_served.link, (uint8_t)byte) != FWR_LINK_FRAME);
}

FWR_NORETURN void fwr_fault(const struct fwr_fault *fault)
{
    for (;;) {
        send_fault(fault);
        await_frame();
        take_numbers();
        if (fwr_served.link.rx[4] == FWR_RESET) {
            fwr_loop_answer(FWR_RESET | FWR_KIND_ANSWER, 0);
            fwr_port_reset();
        }
    }
}
