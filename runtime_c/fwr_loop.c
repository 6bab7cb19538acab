/* fwr_loop.c: answers the link's requests for one model.
 *
 * Each run is carried out once: a repeated request gets its kept result again. All others change
 * nothing when they are carried out twice in a row, and an older one is ignored. The output can be
 * read only if a run stood on the inputs as written.
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
#define FAULT_FRAME (FWR_LINK_HEADER + 4u + 4u * FWR_FAULT_WORDS)

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
    uint8_t has_run;   /* that was a run, carried out: `result` is its answer */
    uint8_t output_valid;
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
    request->reply_size = 52;
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

/* Tells the host that the answer will take its time. The kept answer stays untouched. */
static void send_short(const uint8_t *header, uint8_t kind, enum fwr_status status)
{
    uint8_t frame[FWR_LINK_HEADER + FWR_LINK_CRC];
    memcpy(frame, header, 4);
    frame[4] = kind;
    frame[5] = (uint8_t)status;
    fwr_link_close(frame, FWR_LINK_HEADER);
    fwr_link_send(frame, FWR_LINK_HEADER);
}

/* Up to `count` runs into `loop.result`: no second place on the stack below the kernels. */
static void run_and_time(uint32_t count)
{
    struct result *result = &loop.result;
    *result = (struct result){0, UINT64_MAX, 0, 0};
    while (result->done < count && result->status == 0) {
        uint64_t ticks;
        result->status = timed_run(loop.model->run, &ticks);
        ticks = net_ticks(ticks) + loop.feed_ticks;
        result->total += ticks;
        result->least = ticks < result->least ? ticks : result->least;
        result->done++;
    }
}

static enum fwr_status do_run(struct request *request)
{
    const struct fwr_model *model = loop.model;
    const struct result *result = &loop.result;
    if (request->size != 5) {
        return FWR_E_SIZE;
    }
    if (!loop.has_run) {
        if (model->params && loop.params_written < model->params_size_bytes) {
            return FWR_E_PARAMS;
        }
        int fresh = loop.input_index >= model->input_count;
        int consumes = (model->flags & FWR_MODEL_CONSUMES_INPUT) != 0;
        send_short(loop.link.rx, FWR_RUN | FWR_KIND_ANSWER, FWR_BUSY);
        if (!model->feed) { /* else its first row has done so */
            fwr_probe_start(model, (request->data[4] & FWR_RUN_CHECKSUMS) != 0);
        }
        run_and_time(fwr_link_get(request->data, 4));
        loop.output_valid =
            fresh && result->status == 0 && result->done > 0 && (result->done == 1 || !consumes);
        if (consumes && result->done > 0) {
            require_inputs();
        }
        loop.has_run = 1;
    }
    fwr_link_put(&request->data[0], (uint32_t)result->status, 4);
    fwr_link_put(&request->data[4], result->done, 4);
    fwr_link_put(&request->data[8], result->total, 8);
    fwr_link_put(&request->data[16], result->done > 0 ? result->least : 0, 8);
    request->reply_size = 24;
    return result->status == 0 ? FWR_OK : FWR_E_RUN;
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

static enum fwr_status do_stack(struct request *request)
{
    const struct fwr_port_info *port = fwr_port_info();
    if (!port->stack_low) {
        return FWR_E_UNSUPPORTED;
    }
    fwr_link_put(request->data, fwr_stack_used(port->stack_low, port->stack_high), 4);
    request->reply_size = 4;
    return FWR_OK;
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
    default:
        return FWR_E_COMMAND;
    }
}

static void answer_request(void)
{
    uint8_t *frame = loop.link.rx;
    uint8_t command = frame[4];
    struct request request = {&frame[FWR_LINK_HEADER], loop.link.length - FWR_LINK_HEADER, 0};
    frame[5] = (uint8_t)carry_out(command, &request);
    frame[4] = (uint8_t)(command | FWR_KIND_ANSWER);
    fwr_link_close(frame, FWR_LINK_HEADER + request.reply_size);
    fwr_link_send(frame, FWR_LINK_HEADER + request.reply_size);
    if (command == FWR_RESET) {
        fwr_port_reset();
    }
}

static void take_frame(void)
{
    const uint8_t *frame = loop.link.rx;
    uint16_t session = (uint16_t)fwr_link_get(&frame[0], 2);
    uint16_t sequence = (uint16_t)fwr_link_get(&frame[2], 2);
    if (frame[4] & FWR_KIND_ANSWER) {
        return; /* our own answer, echoed by the line */
    }
    if (session != loop.session || session == 0) {
        if (frame[4] != FWR_HELLO || session == 0) {
            send_short(frame, (uint8_t)(frame[4] | FWR_KIND_ANSWER), FWR_E_SESSION);
            return;
        }
        loop.session = session;
        loop.has_run = 0;
    } else if ((uint16_t)(sequence - loop.sequence) >= 0x8000u) {
        return; /* late copy of an older request */
    } else if (sequence != loop.sequence) {
        loop.has_run = 0;
    }
    loop.sequence = sequence;
    answer_request();
}

void fwr_loop(const struct fwr_model *model)
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
    for (;;) {
        int32_t byte = fwr_port_byte_in();
        if (byte < 0) {
            continue;
        }
        switch (fwr_link_feed(&loop.link, (uint8_t)byte)) {
        case FWR_LINK_FRAME:
            take_frame();
            break;
        case FWR_LINK_DAMAGED:
            send_short(no_session, FWR_KIND_DAMAGED, FWR_OK);
            break;
        case FWR_LINK_NOTHING:
            break;
        }
    }
}

/* ---- Faults -------------------------------------------------------------------------------- */

/* The report in place of the request, whose session and sequence it keeps. */
static void send_fault(const struct fwr_fault *fault)
{
    uint8_t *frame = loop.link.rx;
    uint8_t *payload = &frame[FWR_LINK_HEADER];
    frame[4] = FWR_KIND_FAULT;
    frame[5] = (uint8_t)FWR_E_FAULT;
    fwr_link_put(&payload[0], fault->family, 2);
    fwr_link_put(&payload[2], fwr_probe_current(), 2);
    for (uint32_t i = 0; i < FWR_FAULT_WORDS; i++) {
        fwr_link_put(&payload[4u + 4u * i], fault->words[i], 4);
    }
    fwr_link_close(frame, FAULT_FRAME);
    fwr_link_send(frame, FAULT_FRAME);
}

FWR_NORETURN void fwr_fault(const struct fwr_fault *fault)
{
    uint8_t *frame = loop.link.rx;
    fwr_link_put(&frame[0], loop.session, 2);
    fwr_link_put(&frame[2], loop.sequence, 2);
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
        send_fault(fault);
    }
}
