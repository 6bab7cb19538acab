/* fuzz_link.c: fuzzes the link and the server, under ASan and UBSan.
 *
 * An input is a list of steps: raw bytes, parts of frames, and requests with a correct checksum in
 * the current or another session, with fields that are near the limits of the model. Requests also
 * arrive during runs, pauses and after faults. The link's own receiver checks that every answer is
 * valid and within the agreed size. The model has small tensors in separate memory, so that ASan
 * detects any overflow.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_choices.h"
#include "fuzz_frames.h"
#include "fwr_guard.c"
#include "fwr_link.c"
#include "fwr_probe.c"
#include "fwr_server.c"
#include "fwr_server_data.c"
#include "fwr_server_fault.c"
#include "fwr_server_frames.c"
#include "fwr_server_info.c"
#include "fwr_server_run.c"
#include "fwr_server_watchdog.c"
#include "fwr_stack.c"

#define INPUT_BYTES 37u
#define OUTPUT_BYTES 300u
#define ROW_BYTES 5u
#define ROWS 7u
#define PARAM_BYTES 19u
#define OPERATORS 3u
#define RUNS_MAX 50u
#define FALLBACK_BYTES 700u

#define INPUTS 3u
#define OUTPUTS 2u

enum leave { AT_END = 1, BY_RESET };

static struct {
    struct fwr_link reader;                                 /* receiver of the firmware's output */
    uint8_t sent[FALLBACK_BYTES + 8u * FWR_LINK_FRAME_MAX]; /* to the firmware, while it runs */
    uint32_t sent_size;
    uint32_t sent_at;
    uint32_t stack[64];
    uint32_t runs;
    uint32_t rows;
    jmp_buf leave;
} fuzz;

/* ---- A model ------------------------------------------------------------------------------- */

static struct fwr_operator operators[OPERATORS];
static struct fwr_tensor inputs[INPUTS], outputs[OUTPUTS];
static struct fwr_model model;
#if FWR_GUARDS
static struct fwr_guarded_pool guards[1];
#endif
static uint8_t *input, *output, *params, *row;

static const struct fwr_fault faults[] = {
    {FWR_FAULT_CORTEX_M, {1, 2, 3}},
    {FWR_FAULT_RISCV32, {0xffffffffu}},
};

static int32_t run(void)
{
    if (++fuzz.runs > RUNS_MAX) {
        return -1;
    }
    for (uint32_t i = 0; i < OPERATORS; i++) {
        fwr_probe(i, 0, output, OUTPUT_BYTES);
        for (uint32_t j = 0; j < OUTPUT_BYTES; j++) {
            uint8_t from = row ? row[j % ROW_BYTES] : input[j % INPUT_BYTES];
            output[j] = (uint8_t)(output[j] + i + from);
        }
        fwr_probe(i, 1, output, i == 0 ? 0 : OUTPUT_BYTES);
    }
    switch (choose_below(32)) {
    case 1:
        fwr_fault(&faults[output[1] & 1u]);
    case 2:
        return -3;
#if FWR_WATCHDOG
    case 3:
        fwr_watchdog_expired(&faults[0]);
#endif
#if FWR_GUARDS
    case 4: /* the model writes next to its pool */
        model.guards[0].pool[-1] ^= 1u;
        return 0;
#endif
    default:
        return 0;
    }
}

/* Rows come in order, and only as many as the input has. */
static int32_t feed(uint32_t y)
{
    if (y >= ROWS || (y != 0 && y != fuzz.rows)) {
        abort();
    }
    fuzz.rows = y + 1u;
    output[y] = row[0];
    return choose_below(64) == 1 ? -2 : 0;
}

/* ---- A port -------------------------------------------------------------------------------- */

static struct fwr_port_info info = {"fuzz", "a text", "ticks", 1, 1, 0, 0, 300};

void fwr_port_init(void) {}

const struct fwr_port_info *fwr_port_info(void)
{
    return &info;
}

static void choose_bytes(void);

/* While the firmware runs, pauses or has faulted: nothing, or a further step. */
int32_t fwr_port_byte_in(void)
{
    if (fuzz.sent_at == fuzz.sent_size) {
        if (choices.size == 0) {
            longjmp(fuzz.leave, AT_END);
        }
        fuzz.sent_at = fuzz.sent_size = 0;
        if (choose_below(4) == 0) {
            return -1;
        }
        choose_bytes();
    }
    return fuzz.sent_at < fuzz.sent_size ? fuzz.sent[fuzz.sent_at++] : -1;
}

void fwr_port_byte_out(uint8_t byte)
{
    if (fwr_link_feed(&fuzz.reader, byte) == FWR_LINK_DAMAGED) {
        abort();
    }
}

uint64_t fwr_port_counter(void)
{
    return 0;
}

void fwr_port_counter_align(void) {}

int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    (void)now;
    return baud % 9600u == 0 ? 0 : FWR_E_UNSUPPORTED;
}

FWR_NORETURN void fwr_port_reset(void)
{
    longjmp(fuzz.leave, BY_RESET);
}

FWR_NORETURN void fwr_port_fatal(void)
{
    abort();
}

void fwr_port_trace_pin(int running)
{
    (void)running;
}

uint32_t fwr_port_identity(uint32_t *words)
{
    for (uint32_t i = 0; i < FWR_IDENTITY_WORDS_MAX; i++) {
        words[i] = i;
    }
    return FWR_IDENTITY_WORDS_MAX;
}

#if FWR_WATCHDOG
void fwr_port_watchdog_kick(void) {}
#endif

#if FWR_PRIVATE_IO
/* Memory of an accelerator, which fails at times. */
int32_t fwr_port_pool_write(void *pool, const void *from, uint32_t size)
{
    memcpy(pool, from, size);
    return size == 13u ? FWR_E_IO : FWR_OK;
}

int32_t fwr_port_pool_read(void *to, const void *pool, uint32_t size)
{
    memcpy(to, pool, size);
    return size == 13u ? FWR_E_IO : FWR_OK;
}
#endif

/* ---- Requests ------------------------------------------------------------------------------ */

/* Bytes of the fields of each command; data follows at '*'. */
static const char *const fields[] = {
    "", "", "1222", "12", "24*", "4*", "412", "242", "22", "", "", "4", "", "42",
};

static const uint32_t limits[] = {
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    10,
    ROWS,
    PARAM_BYTES - 1u,
    PARAM_BYTES,
    PARAM_BYTES + 1u,
    INPUT_BYTES - 1u,
    INPUT_BYTES,
    INPUT_BYTES + 1u,
    ROWS *ROW_BYTES - 1u,
    ROWS *ROW_BYTES,
    FWR_LINK_PAYLOAD_MAX - 2u,
    FWR_LINK_PAYLOAD_MAX - 1u,
    FWR_LINK_PAYLOAD_MAX,
    FWR_LINK_PAYLOAD_MAX + 1u,
    OUTPUT_BYTES - 1u,
    OUTPUT_BYTES,
    9600,
    115200,
    0xfffe,
    0xffff,
    0x10000,
    0x7fffffff,
    0xfffffff0,
    0xfffffffe,
    0xffffffff,
};

static void send_byte(uint8_t byte)
{
    if (fuzz.sent_size < sizeof fuzz.sent) {
        fuzz.sent[fuzz.sent_size++] = byte;
    }
}

static uint32_t choose_payload(uint8_t command, uint8_t *payload)
{
    uint32_t size = 0;
    const char *field = command < sizeof fields / sizeof fields[0] ? fields[command] : "*";
    for (; *field != 0; field++) {
        if (*field == '*') {
            uint32_t data = choose_below(FWR_LINK_PAYLOAD_MAX < 200u ? 56u : 200u);
            uint8_t first = choose_byte();
            for (uint32_t i = 0; i < data; i++) {
                payload[size++] = (uint8_t)(first + i * (i % 3u));
            }
        } else {
            uint32_t bytes = (uint32_t)(*field - '0');
            uint32_t value = choose_number(bytes, limits, sizeof limits / sizeof limits[0]);
            fwr_link_put(&payload[size], value, bytes);
            size += bytes;
        }
    }
    return size;
}

static void choose_request(void)
{
    uint8_t frame[FWR_LINK_FRAME_MAX] = {0};
    uint8_t how = choose_byte();
    uint8_t command = choose_byte();
    command = command < 240u ? command % 15u : command;
    uint16_t sequence = (uint16_t)(fwr_server.sequence + (how & 1u));
    uint16_t session = (how & 6u) == 6u ? (uint16_t)choose_byte() : fwr_server.session;
    fwr_link_put(&frame[0], session, 2);
    fwr_link_put(&frame[2], (how & 24u) == 24u ? sequence + choose_byte() * 256u : sequence, 2);
    frame[4] = command;
    uint32_t size = choose_payload(command, &frame[FWR_LINK_HEADER]);
    if (command == FWR_RUN && (how & 32u) == 0) {
        size -= 2u; /* without pauses */
    }
    if ((how & 192u) == 192u) {
        size = choose_below(FWR_LINK_PAYLOAD_MAX < 255u ? FWR_LINK_PAYLOAD_MAX + 1u : 256u);
    }
    fwr_link_close(frame, FWR_LINK_HEADER + size);
    hand_over(send_byte, frame, FWR_LINK_HEADER + size + FWR_LINK_CRC);
}

/* Sends the request in `frame`, with a payload of `size` bytes, under the next number, and clears
 * the payload. */
static void send_next(uint8_t *frame, uint8_t command, uint32_t size)
{
    frame[2]++;
    frame[4] = command;
    fwr_link_close(frame, FWR_LINK_HEADER + size);
    hand_over(send_byte, frame, FWR_LINK_HEADER + size + FWR_LINK_CRC);
    memset(&frame[FWR_LINK_HEADER], 0, size + FWR_LINK_CRC);
}

/* What a host does: a greeting, all that a run needs, the run. From here most states are near. */
static void send_session(uint8_t kind)
{
    uint8_t frame[FWR_LINK_FRAME_MAX] = {0};
    uint8_t *payload = &frame[FWR_LINK_HEADER];
    frame[0] = kind;
    frame[1] = 1;
    send_next(frame, FWR_HELLO, 0);
    if (params) {
        send_next(frame, FWR_WRITE_PARAMS, 4u + PARAM_BYTES);
    }
    for (uint8_t i = 0; i < model.input_count; i++) {
        payload[0] = i;
        send_next(frame, FWR_WRITE_INPUT, 6u + inputs[i].size_bytes);
    }
    payload[0] = 1 + (kind & 1u) * 2u;
    payload[4] = kind >> 1 & 1u;
    payload[5] = payload[6] = kind & 4u ? 0xff : 1;
    send_next(frame, FWR_RUN, kind & 1u ? 5 : 7);
}

/* One step: a request, all or a part of it, or noise. */
static void choose_bytes(void)
{
    uint8_t kind = choose_byte();
    if (kind < 24u) {
        send_session(kind);
        return;
    }
    if (kind < 224u) {
        choose_request();
        if (kind >= 208u) { /* the transfer is interrupted */
            fuzz.sent_size -= choose_below(fuzz.sent_size > 255u ? 256u : fuzz.sent_size + 1u);
        }
        return;
    }
    uint32_t size = kind >= 250u ? FALLBACK_BYTES : choose_byte();
    for (uint32_t i = 0; i < size && choices.size > 0; i++) {
        send_byte(kind >= 250u ? 0xaa : choose_byte());
    }
}

static void choose_steps(void)
{
    while (choices.size > 0) {
        fuzz.sent_at = fuzz.sent_size = 0;
        choose_bytes();
        while (fuzz.sent_at < fuzz.sent_size) {
            fwr_server_feed(fuzz.sent[fuzz.sent_at++]);
        }
    }
}

/* ---- Images -------------------------------------------------------------------------------- */

static void make_model(uint8_t kind)
{
    input = kind & 1u ? 0 : calloc(1, INPUT_BYTES);
    row = kind & 1u ? calloc(1, ROW_BYTES) : 0;
    output = calloc(1, OUTPUT_BYTES);
    params = kind & 2u ? calloc(1, PARAM_BYTES) : 0;
    inputs[0] = (struct fwr_tensor){.name = "in",
                                    .data = input,
                                    .size_bytes = row ? ROWS * ROW_BYTES : INPUT_BYTES,
                                    .dtype = FWR_INT8};
    inputs[1] = (struct fwr_tensor){.name = "", .data = input, .size_bytes = 0, .dtype = FWR_INT8};
    inputs[2] =
        (struct fwr_tensor){.name = "third", .data = input, .size_bytes = 4, .dtype = FWR_INT32};
    outputs[0] = (struct fwr_tensor){
        .name = "out", .data = output, .size_bytes = OUTPUT_BYTES, .dtype = FWR_INT8};
    outputs[1] = (struct fwr_tensor){
        .name = "of four bytes", .data = output, .size_bytes = 4, .dtype = FWR_INT32};
#if FWR_PRIVATE_IO
    outputs[0].is_private = inputs[0].is_private = 1;
#endif
    model = (struct fwr_model){.name = "fuzz",
                               .inputs = inputs,
                               .outputs = outputs,
                               .input_count = row ? 1 : (uint16_t)(kind >> 4 & 3u),
                               .output_count = OUTPUTS,
                               .operator_count = OPERATORS,
                               .flags = (uint16_t)((kind >> 2) & 1u),
                               .run = run,
                               .params = params,
                               .params_size_bytes = PARAM_BYTES,
                               .row_size_bytes = ROW_BYTES,
                               .row = row,
                               .feed = row ? feed : 0,
                               .operators = FWR_PROFILE ? operators : 0};
#if FWR_GUARDS
    static uint8_t pool[OUTPUT_BYTES + 2 * FWR_GUARD_BYTES];
    guards[0] = (struct fwr_guarded_pool){"sram", &pool[FWR_GUARD_BYTES], OUTPUT_BYTES};
    model.guards = guards;
    model.guard_count = 1;
#endif
}

/* From a start of the firmware to its end or reset. */
static void power_on(int knows_stack)
{
    memset(&fuzz.reader, 0, sizeof fuzz.reader);
    memset(&fwr_server, 0, sizeof fwr_server);
    fuzz.sent_size = fuzz.sent_at = fuzz.rows = 0;
    info.stack_low = info.stack_high = 0;
    if (setjmp(fuzz.leave) == 0) {
        fwr_server_start(&model);
        if (knows_stack) { /* from here on, since painting would reach the fuzzer's stack */
            info.stack_low = fuzz.stack;
            info.stack_high = fuzz.stack + 64;
        }
        choose_steps();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin_choices(data, size);
    uint8_t kind = choose_byte();
    fuzz.runs = 0;
    make_model(kind);
    do {
        power_on((kind & 8u) != 0);
    } while (choices.size > 0);
    free(input);
    free(row);
    free(output);
    free(params);
    return 0;
}
