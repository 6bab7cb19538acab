/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server_run.c: runs, measurement, and pauses after operators. See fwr_server_internal.h. */
#include <string.h>

#include "fwr.h"
#include "fwr_guard.h"
#include "fwr_link.h"
#include "fwr_probe.h"
#include "fwr_server.h"
#include "fwr_server_internal.h"
#include "fwr_server_watchdog.h"
#include "port/fwr_port.h"

#define CALIBRATION_RUNS 64u
#define OPERATOR_RECORD 16u

/* ---- Running and measuring ----------------------------------------------------------------- */

static int32_t empty_run(void)
{
    return 0;
}

/* Runs once and measures ticks; the volatile pointer prevents inlining. */
static int32_t timed_run(int32_t (*volatile run)(void), uint64_t *ticks)
{
    fwr_port_counter_align();
    uint64_t begin = fwr_port_counter();
    int32_t result = run();
    *ticks = fwr_port_counter() - begin;
    return result;
}

void fwr_server_calibrate(void)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < CALIBRATION_RUNS; i++) {
        uint64_t ticks;
        (void)timed_run(empty_run, &ticks);
        total += ticks;
    }
    /* The mean: with coarse ticks, a single run may show no cost. */
    fwr_server.run_cost = (uint32_t)((total + CALIBRATION_RUNS / 2u) / CALIBRATION_RUNS);
}

/* Polls the link between runs. Returns whether a request arrived that aborts the batch. */
static bool poll_for_abort(void)
{
    int32_t byte = fwr_port_byte_in();
    while (byte >= 0) {
        if (fwr_server_receive_byte((uint8_t)byte)) {
            switch (fwr_server_classify_frame()) {
            case FWR_FRAME_RETRANSMIT:
                fwr_server_send_busy();
                break;
            case FWR_FRAME_WRONG_SESSION:
            case FWR_FRAME_STALE:
                break;
            default:
                return true;
            }
        }
        byte = fwr_port_byte_in();
    }
    return false;
}

/* Executes up to `count` runs. Results go to `fwr_server.result` to keep the stack shallow below
 * the kernels. */
static void run_and_time(uint32_t count)
{
    struct fwr_result *result = &fwr_server.result;
    *result = (struct fwr_result){0, UINT64_MAX, 0, 0};
    while (result->done < count && result->status == 0) {
        uint64_t ticks;
        if (result->done > 0 && poll_for_abort()) {
            fwr_server.interrupted = true;
            return;
        }
        fwr_port_trace_pin(1);
        result->status = timed_run(fwr_server.model->run, &ticks);
        fwr_port_trace_pin(0);
        fwr_guard_check(fwr_server.model);
        ticks = fwr_server_net_ticks(ticks) + fwr_server.feed_ticks;
        result->total += ticks;
        result->least = ticks < result->least ? ticks : result->least;
        result->done++;
    }
}

/* Executes a run request. Another request may overwrite it in the meantime. */
static void run_model(uint32_t count, uint8_t flags)
{
    const struct fwr_model *model = fwr_server.model;
    const struct fwr_result *result = &fwr_server.result;
    bool fresh = fwr_server.input_index >= model->input_count;
    bool consumes = (model->flags & FWR_MODEL_CONSUMES_INPUT) != 0;
    FWR_ASSERT(!fwr_server.interrupted);
    fwr_server_send_busy();
    if (!model->feed) { /* otherwise the first row has started the probe */
        fwr_probe_start(model, (flags & FWR_RUN_CHECKSUMS) != 0);
    }
    run_and_time(count);
    fwr_server.output_valid = !fwr_server.interrupted && fresh && result->status == 0 &&
                              result->done > 0 && (result->done == 1 || !consumes);
    if (consumes && result->done > 0) {
        fwr_server_invalidate_inputs();
    }
    fwr_server.has_run = !fwr_server.interrupted;
}

/* Kept noinline so its stack frame is released before the model runs. */
__attribute__((noinline)) static int32_t put_result(uint8_t *data)
{
    const struct fwr_result *result = &fwr_server.result;
    uint64_t least = result->done > 0 ? result->least : 0;
    const uint32_t words[] = {
        (uint32_t)result->status,        result->done,    (uint32_t)result->total,
        (uint32_t)(result->total >> 32), (uint32_t)least, (uint32_t)(least >> 32),
    };
    fwr_link_put_all(data, words, 6, 4);
    return sizeof words;
}

int32_t fwr_server_do_run(uint8_t *data)
{
    const struct fwr_model *model = fwr_server.model;
    if (!fwr_server.has_run) {
        uint32_t count = fwr_link_get(data, 4);
        bool pauses = fwr_server_request_size() == 7;
        if (fwr_server_request_size() == 6) {
            return FWR_E_SIZE;
        }
        if (model->params && fwr_server.params_written < model->params_size_bytes) {
            return FWR_E_PARAMS;
        }
        if (pauses && (!FWR_PROFILE || count != 1)) {
            return FWR_E_UNSUPPORTED;
        }
#if FWR_PROFILE
        fwr_server.tap_enabled = pauses;
        fwr_server.tap = (uint16_t)fwr_link_get(&data[5], 2);
        fwr_server.pending_reply_cmd = FWR_RUN;
#endif
        run_model(count, data[4]);
        if (fwr_server.interrupted) {
            return FWR_OK; /* unsent: `link` holds another request in place of the answer */
        }
    }
    return put_result(data);
}

int32_t fwr_server_do_profile(uint8_t *data)
{
    if (!FWR_PROFILE || !fwr_server.model->operators) {
        return FWR_E_UNSUPPORTED;
    }
    const struct fwr_operator *operators = fwr_server.model->operators;
    uint32_t first = fwr_link_get(&data[0], 2);
    uint32_t count = fwr_link_get(&data[2], 2);
    if (!fwr_server_is_in_range(first, count, fwr_server.model->operator_count) ||
        count > FWR_LINK_PAYLOAD_MAX / OPERATOR_RECORD) {
        return FWR_E_RANGE;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct fwr_operator *of = &operators[first + i];
        const uint32_t words[] = {(uint32_t)of->count, (uint32_t)(of->count >> 32), of->calls,
                                  of->checksum};
        fwr_link_put_all(&data[(size_t)i * OPERATOR_RECORD], words, 4, 4);
    }
    return (int32_t)(count * OPERATOR_RECORD);
}

/* ---- Pauses after operators ------------------------------------------------------------------ */

#if FWR_PROFILE

/* Answers the step after the last pause: the run has ended. */
int32_t fwr_server_do_step(uint8_t *data)
{
    return fwr_server.has_run ? put_result(data) : FWR_E_COMMAND;
}

static void send_pause(uint32_t operator_index, const uint8_t *data, uint32_t size_bytes)
{
    uint8_t *payload = &fwr_server.link.rx[FWR_LINK_HEADER];
    FWR_ASSERT(fwr_server.pending_reply_cmd == FWR_RUN || fwr_server.pending_reply_cmd == FWR_STEP);
    fwr_link_put(&payload[0], operator_index, 2);
    fwr_link_put(&payload[2], size_bytes, 4);
    fwr_link_put(&payload[6], (uint32_t)(uintptr_t)data, 4);
    fwr_server_reply((uint8_t)(fwr_server.pending_reply_cmd | FWR_KIND_ANSWER), FWR_PAUSED, 10);
}

static void send_tapped(const uint8_t *data, uint32_t size_bytes)
{
    uint8_t *payload = &fwr_server.link.rx[FWR_LINK_HEADER];
    uint32_t offset = fwr_link_get(payload, 4);
    uint32_t size = fwr_link_get(&payload[4], 2);
    if (fwr_server.link.length == FWR_LINK_HEADER + 6u && size <= FWR_LINK_PAYLOAD_MAX &&
        fwr_server_is_in_range(offset, size, size_bytes)) {
        memcpy(payload, data + offset, size);
        fwr_server_reply(FWR_TAP_READ | FWR_KIND_ANSWER, FWR_OK, size);
    } else {
        fwr_server_reply(FWR_TAP_READ | FWR_KIND_ANSWER, FWR_E_RANGE, 0);
    }
}

/* Handles a request during a pause. Returns whether the run continues. */
static bool handle_paused_request(uint32_t operator_index, const uint8_t *data, uint32_t size_bytes)
{
    const uint8_t *frame = fwr_server.link.rx;
    enum fwr_frame_class standing = fwr_server_classify_frame();
    uint8_t command = frame[FWR_LINK_KIND];
    if (standing == FWR_FRAME_STALE || standing == FWR_FRAME_WRONG_SESSION) {
        return false;
    }
    if (standing == FWR_FRAME_NEW_SESSION ||
        (command != FWR_STEP && command != FWR_TAP_READ && standing == FWR_FRAME_NEXT)) {
        fwr_server.tap_enabled = false; /* finish without pauses, then handle the request */
        fwr_server.interrupted = true;
        return true;
    }
    fwr_server.sequence = (uint16_t)fwr_link_get(&frame[FWR_LINK_SEQUENCE], 2);
    if (command == FWR_TAP_READ) {
        send_tapped(data, size_bytes);
        return false;
    }
    if (standing == FWR_FRAME_RETRANSMIT) {
        send_pause(operator_index, data, size_bytes);
        return false;
    }
    fwr_server.pending_reply_cmd = FWR_STEP;
    return true;
}

void fwr_server_tap(uint32_t operator_index, const void *data, uint32_t size_bytes)
{
    if (!fwr_server.tap_enabled ||
        (fwr_server.tap != FWR_TAP_ALL && fwr_server.tap != operator_index)) {
        return;
    }
    send_pause(operator_index, data, size_bytes);
    for (;;) {
        int32_t byte = fwr_server_poll_byte();
        if (byte >= 0 && fwr_server_receive_byte((uint8_t)byte) &&
            handle_paused_request(operator_index, data, size_bytes)) {
            return;
        }
    }
}

#endif
