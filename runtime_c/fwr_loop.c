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
#include "fwr_link.h"
#include "fwr_probe.h"
#include "fwr_stack.h"
#include "port/fwr_port.h"

#define CALIBRATION_RUNS 64u
#define OPERATOR_RECORD 16u
#define RUN_ANSWER 24u
#define FAULT_FRAME (FWR_LINK_HEADER + 8u + 4u * FWR_FAULT_WORDS)

/* So many bytes without a sound frame: at another baud than that of start-up, the host has left. */
#define STRANGE_BYTES_MAX (FWR_LINK_FRAME_MAX + 256u)

/* What the last run request came to. */
struct result {
    uint64_t total; /* ticks of all runs */
    uint64_t least; /* ticks of the shortest */
    uint32_t done;  /* runs */
    int32_t status; /* the model's own */
};

/* All that the link keeps: an answer grows where its request lies, over bytes already used. */
static struct {
    const struct fwr_model *model;
    struct fwr_link link;
    struct result result;
    uint64_t feed_ticks;     /* of the rows fed since row 0: part of the run that follows */
    uint32_t run_cost;       /* ticks that measuring an empty run shows */
    uint32_t params_written; /* bytes from the start of the block */
    uint32_t input_offset;   /* inputs are written from first to last: the place reached */
    uint16_t input_index;
    uint16_t session;  /* 0: none yet */
    uint16_t sequence; /* of the last request */
    uint16_t strange;  /* bytes since the last sound frame */
    uint8_t has_run;   /* that was a run, carried out: `result` is its answer */
    uint8_t output_valid;
    uint8_t interrupted;  /* a run ended early: another request lies in `link` */
    uint8_t baud_changed; /* the line runs at another rate than at start-up */
#if FWR_PROFILE
    uint16_t tap;      /* the operator to pause behind, or FWR_TAP_ALL */
    uint8_t tapping;   /* the run under way pauses there */
    uint8_t tap_asked; /* the command to answer at the next pause: run, then step */
#endif
} loop;

/* A request's payload. The answer's replaces it, so it is read before anything is written. */
struct request {
    uint8_t *data;
    uint32_t size;
    uint32_t reply_size;
};

/* ---- What the host may know ---------------------------------------------------------------- */

static enum fwr_status do_hello(struct request *request)
{
    const struct fwr_model *model = loop.model;
    const struct fwr_port_info *port = fwr_port_info();
    uint8_t *reply = request->data;
    uint32_t stack_size = 0;
    if (port->stack_low) {
        stack_size = (uint32_t)((uintptr_t)port->stack_high - (uintptr_t)port->stack_low);
    }
    fwr_link_put(&reply[0], FWR_LINK_VERSION, 2);
    fwr_link_put(&reply[2], FWR_ABI, 2);
    memcpy(&reply[4], model->id, 16);
    fwr_link_put(&reply[20], FWR_LINK_PAYLOAD_MAX, 2);
    fwr_link_put(&reply[22], model->flags, 2);
    fwr_link_put(&reply[24], model->input_count, 2);
    fwr_link_put(&reply[26], model->output_count, 2);
    fwr_link_put(&reply[28], model->operator_count, 2);
    fwr_link_put(&reply[30], FWR_PROFILE, 2);
    fwr_link_put(&reply[32], model->params ? model->params_size_bytes : 0, 4);
    fwr_link_put(&reply[36], port->counter_scale_num, 4);
    fwr_link_put(&reply[40], port->counter_scale_den, 4);
    fwr_link_put(&reply[44], loop.run_cost, 4);
    fwr_link_put(&reply[48], stack_size, 4);
    fwr_link_put(&reply[52], port->receive_bytes, 2);
    request->reply_size = 54;
    return FWR_OK;
}

static const struct fwr_tensor *find_tensor(uint32_t is_output, uint32_t index)
{
    const struct fwr_model *model = loop.model;
    if (is_output > 1 || index >= (is_output ? model->output_count : model->input_count)) {
        return 0;
    }
    return is_output ? &model->outputs[index] : &model->inputs[index];
}

static const char *find_text(uint32_t which, uint32_t index)
{
    const struct fwr_port_info *port = fwr_port_info();
    switch (which) {
    case 0:
        return loop.model->name;
    case 1:
        return port->board;
    case 2:
        return port->text;
    case 3:
        return port->counter_unit;
    default: {
        const struct fwr_tensor *tensor = find_tensor(which - 4u, index);
        return tensor ? tensor->name : 0;
    }
    }
}

static enum fwr_status do_text(struct request *request)
{
    if (request->size != 7) {
        return FWR_E_SIZE;
    }
    const char *text = find_text(request->data[0], fwr_link_get(&request->data[1], 2));
    uint32_t offset = fwr_link_get(&request->data[3], 2);
    uint32_t size = fwr_link_get(&request->data[5], 2);
    if (!text || size + 2u > FWR_LINK_PAYLOAD_MAX) {
        return FWR_E_RANGE;
    }
    uint32_t total = (uint32_t)strlen(text);
    if (offset > total) {
        return FWR_E_RANGE;
    }
    if (size > total - offset) {
        size = total - offset;
    }
    fwr_link_put(request->data, total, 2);
    memcpy(&request->data[2], &text[offset], size);
    request->reply_size = 2u + size;
    return FWR_OK;
}

static enum fwr_status do_tensor(struct request *request)
{
    if (request->size != 3) {
        return FWR_E_SIZE;
    }
    const struct fwr_tensor *tensor =
        find_tensor(request->data[0], fwr_link_get(&request->data[1], 2));
    if (!tensor) {
        return FWR_E_RANGE;
    }
    request->data[0] = tensor->dtype;
    fwr_link_put(&request->data[1], tensor->size_bytes, 4);
    request->reply_size = 5;
    return FWR_OK;
}

/* ---- Data ---------------------------------------------------------------------------------- */

/* Moves the place reached over whole tensors. */
static void pass_full_inputs(void)
{
    const struct fwr_model *model = loop.model;
    while (loop.input_index < model->input_count &&
           loop.input_offset >= model->inputs[loop.input_index].size_bytes) {
        loop.input_index++;
        loop.input_offset = 0;
    }
}

static void require_inputs(void)
{
    loop.input_index = 0;
    loop.input_offset = 0;
    pass_full_inputs();
}

static int inside(uint32_t offset, uint32_t size, uint32_t limit)
{
    return offset <= limit && size <= limit - offset;
}

/* The ticks that passed between two readings without those that measuring takes. */
static uint64_t net_ticks(uint64_t ticks)
{
    return ticks > loop.run_cost ? ticks - loop.run_cost : 0;
}

static int32_t feed_row(uint32_t row)
{
    fwr_port_counter_align();
    uint64_t begin = fwr_port_counter();
    int32_t result = loop.model->feed(row);
    loop.feed_ticks += net_ticks(fwr_port_counter() - begin);
    return result;
}

/* Bytes of an input that goes in row by row, in order. The first byte begins a new one; others
 * that were taken already come from a request that is repeated, whole or in smaller pieces. */
static enum fwr_status feed_input(uint32_t offset, const uint8_t *data, uint32_t size)
{
    const struct fwr_model *model = loop.model;
    if (offset == 0) {
        loop.input_index = 0;
        loop.input_offset = 0;
        loop.feed_ticks = 0;
        loop.output_valid = 0;
        fwr_probe_start(model, 1);
    }
    uint32_t reached = loop.input_index == 0 ? loop.input_offset : model->inputs[0].size_bytes;
    if (offset > reached) {
        return FWR_E_RANGE;
    }
    uint32_t known = reached - offset < size ? reached - offset : size;
    data += known;
    size -= known;
    while (size > 0) {
        uint32_t at = loop.input_offset % model->row_size_bytes;
        uint32_t part = model->row_size_bytes - at < size ? model->row_size_bytes - at : size;
        memcpy((uint8_t *)model->row + at, data, part);
        loop.input_offset += part;
        data += part;
        size -= part;
        if (at + part == model->row_size_bytes &&
            feed_row(loop.input_offset / model->row_size_bytes - 1u) != 0) {
            require_inputs();
            return FWR_E_RUN;
        }
    }
    pass_full_inputs();
    return FWR_OK;
}

static enum fwr_status do_write_input(struct request *request)
{
    if (request->size < 6) {
        return FWR_E_SIZE;
    }
    uint32_t index = fwr_link_get(&request->data[0], 2);
    uint32_t offset = fwr_link_get(&request->data[2], 4);
    uint32_t size = request->size - 6u;
    const struct fwr_tensor *tensor = find_tensor(0, index);
    if (!tensor || !inside(offset, size, tensor->size_bytes)) {
        return FWR_E_RANGE;
    }
    if (loop.model->feed) {
        return feed_input(offset, &request->data[6], size);
    }
    memcpy((uint8_t *)tensor->data + offset, &request->data[6], size);
    loop.output_valid = 0;
    if (index == loop.input_index && offset <= loop.input_offset &&
        offset + size > loop.input_offset) {
        loop.input_offset = offset + size;
        pass_full_inputs();
    }
    return FWR_OK;
}

static enum fwr_status do_write_params(struct request *request)
{
    const struct fwr_model *model = loop.model;
    if (!model->params) {
        return FWR_E_UNSUPPORTED;
    }
    if (request->size < 4) {
        return FWR_E_SIZE;
    }
    uint32_t offset = fwr_link_get(&request->data[0], 4);
    uint32_t size = request->size - 4u;
    if (!inside(offset, size, model->params_size_bytes)) {
        return FWR_E_RANGE;
    }
    memcpy((uint8_t *)model->params + offset, &request->data[4], size);
    loop.output_valid = 0;
    if (offset <= loop.params_written && offset + size > loop.params_written) {
        loop.params_written = offset + size;
    }
    return FWR_OK;
}

static enum fwr_status do_read_output(struct request *request)
{
    if (request->size != 8) {
        return FWR_E_SIZE;
    }
    const struct fwr_tensor *tensor = find_tensor(1, fwr_link_get(&request->data[0], 2));
    uint32_t offset = fwr_link_get(&request->data[2], 4);
    uint32_t size = fwr_link_get(&request->data[6], 2);
    if (!tensor || size > FWR_LINK_PAYLOAD_MAX || !inside(offset, size, tensor->size_bytes)) {
        return FWR_E_RANGE;
    }
    if (!loop.output_valid) {
        return FWR_E_NO_OUTPUT;
    }
    memcpy(request->data, (const uint8_t *)tensor->data + offset, size);
    request->reply_size = size;
    return FWR_OK;
}

/* ---- Whose frame it is --------------------------------------------------------------------- */

enum standing {
    AGAIN,     /* the last request, repeated */
    NEWER,     /* the session's next */
    TAKE_OVER, /* the hello of another session */
    FOREIGN,   /* of another session, which has not said hello */
    LATE       /* a copy of an older request, or our own answer, echoed by the line */
};

static enum standing judge(const uint8_t *frame)
{
    uint16_t session = (uint16_t)fwr_link_get(&frame[0], 2);
    uint16_t ahead = (uint16_t)(fwr_link_get(&frame[2], 2) - loop.sequence);
    if (frame[4] & FWR_KIND_ANSWER) {
        return LATE;
    }
    if (session == 0 || session != loop.session) {
        return frame[4] == FWR_HELLO && session != 0 ? TAKE_OVER : FOREIGN;
    }
    if (ahead >= 0x8000u) {
        return LATE;
    }
    return ahead == 0 ? AGAIN : NEWER;
}

/* Session and sequence of the request under way, wherever its own bytes are by now. */
static void put_header(uint8_t *frame, uint8_t kind, enum fwr_status status)
{
    fwr_link_put(&frame[0], loop.session, 2);
    fwr_link_put(&frame[2], loop.sequence, 2);
    frame[4] = kind;
    frame[5] = (uint8_t)status;
}

static void send_short(const uint8_t *header, uint8_t kind, enum fwr_status status)
{
    uint8_t frame[FWR_LINK_HEADER + FWR_LINK_CRC];
    memcpy(frame, header, 4);
    frame[4] = kind;
    frame[5] = (uint8_t)status;
    fwr_link_close(frame, FWR_LINK_HEADER);
    fwr_link_send(frame, FWR_LINK_HEADER);
}

static void refuse_foreign(void)
{
    const uint8_t *frame = loop.link.rx;
    send_short(frame, (uint8_t)(frame[4] | FWR_KIND_ANSWER), FWR_E_SESSION);
}

/* Takes one byte; whether it completes a sound frame. */
static int hear(uint8_t byte)
{
    static const uint8_t no_session[4] = {0, 0, 0, 0};
    enum fwr_link_event event = fwr_link_feed(&loop.link, byte);
    if (event == FWR_LINK_FRAME) {
        loop.strange = 0;
        return 1;
    }
    if (loop.strange < STRANGE_BYTES_MAX) {
        loop.strange++;
    } else if (loop.baud_changed) {
        loop.baud_changed = 0;
        (void)fwr_port_set_baud(0, 1);
    }
    if (event == FWR_LINK_DAMAGED) {
        send_short(no_session, FWR_KIND_DAMAGED, FWR_OK);
    }
    return 0;
}

/* Hears the line between two runs; whether a request came that ends them. */
static int heard_another(void)
{
    int32_t byte = fwr_port_byte_in();
    while (byte >= 0) {
        if (hear((uint8_t)byte)) {
            switch (judge(loop.link.rx)) {
            case AGAIN:
                send_short(loop.link.rx, FWR_RUN | FWR_KIND_ANSWER, FWR_BUSY);
                break;
            case FOREIGN:
                refuse_foreign();
                break;
            case LATE:
                break;
            default:
                return 1;
            }
        }
        byte = fwr_port_byte_in();
    }
    return 0;
}

/* ---- Running and measuring ----------------------------------------------------------------- */

static int32_t empty_run(void)
{
    return 0;
}

/* One run through a pointer that the compiler cannot see through, and its ticks. */
static int32_t timed_run(int32_t (*volatile run)(void), uint64_t *ticks)
{
    fwr_port_counter_align();
    uint64_t begin = fwr_port_counter();
    int32_t result = run();
    *ticks = fwr_port_counter() - begin;
    return result;
}

static void calibrate(void)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < CALIBRATION_RUNS; i++) {
        uint64_t ticks;
        (void)timed_run(empty_run, &ticks);
        total += ticks;
    }
    /* The mean: a counter of coarse ticks shows the cost of one run in one of many. */
    loop.run_cost = (uint32_t)((total + CALIBRATION_RUNS / 2u) / CALIBRATION_RUNS);
}

/* Up to `count` runs into `loop.result`: no second place on the stack below the kernels. */
static void run_and_time(uint32_t count)
{
    struct result *result = &loop.result;
    *result = (struct result){0, UINT64_MAX, 0, 0};
    while (result->done < count && result->status == 0) {
        uint64_t ticks;
        if (result->done > 0 && heard_another()) {
            loop.interrupted = 1;
            return;
        }
        fwr_port_mark(1);
        result->status = timed_run(loop.model->run, &ticks);
        fwr_port_mark(0);
        ticks = net_ticks(ticks) + loop.feed_ticks;
        result->total += ticks;
        result->least = ticks < result->least ? ticks : result->least;
        result->done++;
    }
}

/* Runs as asked for. The request's bytes may be gone afterwards: another may have come. */
static void run_model(uint32_t count, uint8_t flags)
{
    const struct fwr_model *model = loop.model;
    const struct result *result = &loop.result;
    int fresh = loop.input_index >= model->input_count;
    int consumes = (model->flags & FWR_MODEL_CONSUMES_INPUT) != 0;
    send_short(loop.link.rx, FWR_RUN | FWR_KIND_ANSWER, FWR_BUSY);
    if (!model->feed) { /* else its first row has done so */
        fwr_probe_start(model, (flags & FWR_RUN_CHECKSUMS) != 0);
    }
    run_and_time(count);
    loop.output_valid = !loop.interrupted && fresh && result->status == 0 && result->done > 0 &&
                        (result->done == 1 || !consumes);
    if (consumes && result->done > 0) {
        require_inputs();
    }
    loop.has_run = !loop.interrupted;
}

static enum fwr_status put_result(struct request *request)
{
    const struct result *result = &loop.result;
    fwr_link_put(&request->data[0], (uint32_t)result->status, 4);
    fwr_link_put(&request->data[4], result->done, 4);
    fwr_link_put(&request->data[8], result->total, 8);
    fwr_link_put(&request->data[16], result->done > 0 ? result->least : 0, 8);
    request->reply_size = RUN_ANSWER;
    return result->status == 0 ? FWR_OK : FWR_E_RUN;
}

static enum fwr_status do_run(struct request *request)
{
    const struct fwr_model *model = loop.model;
    if (request->size != 5 && request->size != 7) {
        return FWR_E_SIZE;
    }
    if (!loop.has_run) {
        uint32_t count = fwr_link_get(request->data, 4);
        if (model->params && loop.params_written < model->params_size_bytes) {
            return FWR_E_PARAMS;
        }
        if (request->size == 7 && (!FWR_PROFILE || count != 1)) {
            return FWR_E_UNSUPPORTED;
        }
#if FWR_PROFILE
        loop.tapping = request->size == 7;
        loop.tap = (uint16_t)fwr_link_get(&request->data[5], 2);
        loop.tap_asked = FWR_RUN;
#endif
        run_model(count, request->data[4]);
        if (loop.interrupted) {
            return FWR_BUSY; /* another request lies where the answer would go */
        }
    }
    return put_result(request);
}

static enum fwr_status do_profile(struct request *request)
{
    const struct fwr_operator *operators = loop.model->operators;
    if (request->size != 4) {
        return FWR_E_SIZE;
    }
    uint32_t first = fwr_link_get(&request->data[0], 2);
    uint32_t count = fwr_link_get(&request->data[2], 2);
    if (!FWR_PROFILE || !operators) {
        return FWR_E_UNSUPPORTED;
    }
    if (!inside(first, count, loop.model->operator_count) ||
        count > FWR_LINK_PAYLOAD_MAX / OPERATOR_RECORD) {
        return FWR_E_RANGE;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *at = &request->data[i * OPERATOR_RECORD];
        fwr_link_put(&at[0], operators[first + i].count, 8);
        fwr_link_put(&at[8], operators[first + i].calls, 4);
        fwr_link_put(&at[12], operators[first + i].checksum, 4);
    }
    request->reply_size = count * OPERATOR_RECORD;
    return FWR_OK;
}

/* Bytes of stack used at most so far; 0 if the port does not know its stack. */
static uint32_t stack_used(void)
{
    const struct fwr_port_info *port = fwr_port_info();
    return port->stack_low ? fwr_stack_used(port->stack_low, port->stack_high) : 0;
}

static enum fwr_status do_stack(struct request *request)
{
    if (!fwr_port_info()->stack_low) {
        return FWR_E_UNSUPPORTED;
    }
    fwr_link_put(request->data, stack_used(), 4);
    request->reply_size = 4;
    return FWR_OK;
}

/* Whether the port can; the switch itself comes after the answer. */
static enum fwr_status do_baud(struct request *request)
{
    if (request->size != 4) {
        return FWR_E_SIZE;
    }
    return fwr_port_set_baud(fwr_link_get(request->data, 4), 0) == 0 ? FWR_OK : FWR_E_UNSUPPORTED;
}

/* ---- Frames -------------------------------------------------------------------------------- */

static enum fwr_status carry_out(uint8_t command, struct request *request)
{
    switch (command) {
    case FWR_HELLO:
        return do_hello(request);
    case FWR_TEXT:
        return do_text(request);
    case FWR_TENSOR:
        return do_tensor(request);
    case FWR_WRITE_INPUT:
        return do_write_input(request);
    case FWR_WRITE_PARAMS:
        return do_write_params(request);
    case FWR_RUN:
        return do_run(request);
    case FWR_READ_OUTPUT:
        return do_read_output(request);
    case FWR_PROFILE_READ:
        return do_profile(request);
    case FWR_STACK:
        return do_stack(request);
    case FWR_RESET:
        return FWR_OK;
    case FWR_BAUD:
        return do_baud(request);
#if FWR_PROFILE
    case FWR_STEP: /* behind the last pause: the run is over */
        return loop.has_run ? put_result(request) : FWR_E_COMMAND;
#endif
    default:
        return FWR_E_COMMAND;
    }
}

static void answer_request(void)
{
    uint8_t *frame = loop.link.rx;
    uint8_t command = frame[4];
    struct request request = {&frame[FWR_LINK_HEADER], loop.link.length - FWR_LINK_HEADER, 0};
    uint32_t baud = fwr_link_get(request.data, 4);
    enum fwr_status status = carry_out(command, &request);
    if (loop.interrupted) {
        return;
    }
#if FWR_PROFILE
    if (command == FWR_RUN && request.reply_size == RUN_ANSWER && loop.tap_asked != 0) {
        command = loop.tap_asked; /* the run paused: its end answers the step that led there */
    }
    loop.tap_asked = 0;
#endif
    loop.link.done = 1; /* of a frame that was coming in, the answer has taken the place */
    put_header(frame, (uint8_t)(command | FWR_KIND_ANSWER), status);
    fwr_link_close(frame, FWR_LINK_HEADER + request.reply_size);
    fwr_link_send(frame, FWR_LINK_HEADER + request.reply_size);
    if (command == FWR_RESET) {
        fwr_port_reset();
    }
    if (command == FWR_BAUD && status == FWR_OK) {
        loop.baud_changed = fwr_port_set_baud(baud, 1) == 0;
    }
}

static void take_frame(void)
{
    const uint8_t *frame = loop.link.rx;
    loop.interrupted = 0;
    switch (judge(frame)) {
    case LATE:
        return;
    case FOREIGN:
        refuse_foreign();
        return;
    case AGAIN:
        break;
    default:
        /* What follows a run that paused may still ask for its end. */
        if (frame[4] != FWR_STEP) {
            loop.has_run = 0;
        }
        break;
    }
    loop.session = (uint16_t)fwr_link_get(&frame[0], 2);
    loop.sequence = (uint16_t)fwr_link_get(&frame[2], 2);
    answer_request();
}

void fwr_loop_take(uint8_t byte)
{
    if (!hear(byte)) {
        return;
    }
    do {
        take_frame();
    } while (loop.interrupted);
}

void fwr_loop_start(const struct fwr_model *model)
{
    static const uint8_t no_session[4] = {0, 0, 0, 0};
    fwr_port_init();
    if (fwr_port_info()->stack_low) {
        fwr_stack_paint(fwr_port_info()->stack_low);
    }
    loop.model = model;
    if (model->init) {
        model->init();
    }
    require_inputs();
    calibrate();
    send_short(no_session, FWR_KIND_STARTED, FWR_OK);
}

void fwr_loop(const struct fwr_model *model)
{
    fwr_loop_start(model);
    for (;;) {
        int32_t byte = fwr_port_byte_in();
        if (byte >= 0) {
            fwr_loop_take((uint8_t)byte);
        }
    }
}

/* ---- Pauses behind operators --------------------------------------------------------------- */

#if FWR_PROFILE

static void send_pause(uint32_t operator_index, uint32_t size_bytes, uint8_t command)
{
    uint8_t *frame = loop.link.rx;
    put_header(frame, (uint8_t)(command | FWR_KIND_ANSWER), FWR_PAUSED);
    fwr_link_put(&frame[FWR_LINK_HEADER], operator_index, 2);
    fwr_link_put(&frame[FWR_LINK_HEADER + 2u], size_bytes, 4);
    loop.link.done = 1;
    fwr_link_close(frame, FWR_LINK_HEADER + 6u);
    fwr_link_send(frame, FWR_LINK_HEADER + 6u);
}

static void send_tapped(const uint8_t *data, uint32_t size_bytes)
{
    uint8_t *frame = loop.link.rx;
    uint8_t *payload = &frame[FWR_LINK_HEADER];
    uint32_t offset = fwr_link_get(payload, 4);
    uint32_t size = fwr_link_get(&payload[4], 2);
    int sound = loop.link.length == FWR_LINK_HEADER + 6u && size <= FWR_LINK_PAYLOAD_MAX &&
                inside(offset, size, size_bytes);
    put_header(frame, FWR_TAP_READ | FWR_KIND_ANSWER, sound ? FWR_OK : FWR_E_RANGE);
    if (sound) {
        memcpy(payload, data + offset, size);
    }
    loop.link.done = 1;
    fwr_link_close(frame, FWR_LINK_HEADER + (sound ? size : 0));
    fwr_link_send(frame, FWR_LINK_HEADER + (sound ? size : 0));
}

/* A request that came in the pause; whether the run goes on. `asked` is the command that led here,
 * and becomes the one that leads on. */
static int take_in_pause(uint32_t operator_index, const uint8_t *data, uint32_t size_bytes,
                         uint8_t *asked)
{
    const uint8_t *frame = loop.link.rx;
    enum standing standing = judge(frame);
    if (standing == LATE) {
        return 0;
    }
    if (standing == FOREIGN) {
        refuse_foreign();
        return 0;
    }
    if (standing == TAKE_OVER ||
        (frame[4] != FWR_STEP && frame[4] != FWR_TAP_READ && standing == NEWER)) {
        loop.tapping = 0; /* the run goes to its end unheard, then this request has its turn */
        loop.interrupted = 1;
        return 1;
    }
    loop.sequence = (uint16_t)fwr_link_get(&frame[2], 2);
    if (frame[4] == FWR_TAP_READ) {
        send_tapped(data, size_bytes);
        return 0;
    }
    if (standing == AGAIN) {
        send_pause(operator_index, size_bytes, *asked);
        return 0;
    }
    *asked = FWR_STEP;
    return 1;
}

void fwr_loop_tap(uint32_t operator_index, const void *data, uint32_t size_bytes)
{
    if (!loop.tapping || (loop.tap != FWR_TAP_ALL && loop.tap != operator_index)) {
        return;
    }
    send_pause(operator_index, size_bytes, loop.tap_asked);
    for (;;) {
        int32_t byte = fwr_port_byte_in();
        if (byte >= 0 && hear((uint8_t)byte) &&
            take_in_pause(operator_index, data, size_bytes, &loop.tap_asked)) {
            return;
        }
    }
}

#endif

/* ---- Faults -------------------------------------------------------------------------------- */

/* The report in place of the request, whose session and sequence it keeps. */
static void send_fault(const struct fwr_fault *fault)
{
    uint8_t *frame = loop.link.rx;
    uint8_t *payload = &frame[FWR_LINK_HEADER];
    put_header(frame, FWR_KIND_FAULT, FWR_E_FAULT);
    fwr_link_put(&payload[0], fault->family, 2);
    fwr_link_put(&payload[2], fwr_probe_current(), 2);
    fwr_link_put(&payload[4], stack_used(), 4);
    for (uint32_t i = 0; i < FWR_FAULT_WORDS; i++) {
        fwr_link_put(&payload[8u + 4u * i], fault->words[i], 4);
    }
    fwr_link_close(frame, FAULT_FRAME);
    fwr_link_send(frame, FAULT_FRAME);
}

FWR_NORETURN void fwr_fault(const struct fwr_fault *fault)
{
    const uint8_t *frame = loop.link.rx;
    loop.link.done = 1; /* a frame that was coming in is lost */
    send_fault(fault);
    for (;;) {
        int32_t byte = fwr_port_byte_in();
        if (byte < 0 || fwr_link_feed(&loop.link, (uint8_t)byte) != FWR_LINK_FRAME) {
            continue;
        }
        if (frame[4] == FWR_RESET) {
            send_short(frame, FWR_RESET | FWR_KIND_ANSWER, FWR_OK);
            fwr_port_reset();
        }
        loop.session = (uint16_t)fwr_link_get(&frame[0], 2);
        loop.sequence = (uint16_t)fwr_link_get(&frame[2], 2);
        send_fault(fault);
    }
}
