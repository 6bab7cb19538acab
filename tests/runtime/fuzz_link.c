/* fuzz_link.c: fuzzes the link and the server with libFuzzer, ASan and UBSan.
 *
 * The input is a list of steps: raw bytes, or a frame with a correct checksum in the current or
 * another session, so that the fuzzer need not guess CRC-32. The link's own receiver checks that
 * every answer is valid and within the agreed size. The model has small tensors in separate memory,
 * so that ASan detects any overflow.
 *
 *     clang -fsanitize=fuzzer,address,undefined -DFWR_PROFILE=1 -Iruntime_c fuzz_link.c
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_frames.h"
#include "fwr_defaults.c"
#include "fwr_link.c"
#include "fwr_probe.c"
#include "fwr_server.c"
#include "fwr_server_data.c"
#include "fwr_server_info.c"
#include "fwr_server_run.c"
#include "fwr_stack.c"

#define INPUT_BYTES 37u
#define ROW_BYTES 5u
#define ROWS 7u
#define PARAM_BYTES 19u
#define OPERATORS 3u
#define RUNS_MAX 50u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    const uint8_t *data;
    size_t size;
    struct fwr_link reader; /* receiver of the firmware's output */
    uint32_t stack[64];
    uint32_t runs;
    jmp_buf end;
} fuzz;

/* ---- A model ------------------------------------------------------------------------------- */

static uint8_t *input, *output, *params, *row;

static int32_t run(void)
{
    if (++fuzz.runs > RUNS_MAX) {
        return -1;
    }
    for (uint32_t i = 0; i < OPERATORS; i++) {
        fwr_probe(i, 0, output, INPUT_BYTES);
        for (uint32_t j = 0; j < INPUT_BYTES; j++) {
            output[j] = (uint8_t)(output[j] + i + (row ? row[j % ROW_BYTES] : input[j]));
        }
        fwr_probe(i, 1, output, i == 0 ? 0 : INPUT_BYTES);
    }
    return output[0] == 0xee ? -3 : 0;
}

static int32_t feed(uint32_t y)
{
    if (y >= ROWS) {
        abort();
    }
    output[y] = row[0];
    return row[1] == 0xdd ? -2 : 0;
}

/* ---- A port -------------------------------------------------------------------------------- */

static struct fwr_port_info info = {"fuzz", "a text", "ticks", 1, 1, 0, 0, 300};

void fwr_port_init(void) {}

const struct fwr_port_info *fwr_port_info(void)
{
    return &info;
}

/* During a run: the rest of the input; at its end, leave the run. */
int32_t fwr_port_byte_in(void)
{
    if (fuzz.size == 0) {
        longjmp(fuzz.end, 1);
    }
    fuzz.size--;
    return *fuzz.data++;
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

FWR_NORETURN void fwr_port_reset(void)
{
    longjmp(fuzz.end, 1);
}

FWR_NORETURN void fwr_port_fatal(void)
{
    abort();
}

/* ---- Steps --------------------------------------------------------------------------------- */

static uint8_t next(void)
{
    return fuzz.size == 0 ? 0 : (fuzz.size--, *fuzz.data++);
}

static void take_sound_frame(uint8_t kind, uint32_t size)
{
    uint8_t frame[FWR_LINK_HEADER + 255u + FWR_LINK_CRC];
    uint8_t how = next();
    uint16_t sequence = (uint16_t)(fwr_server.sequence + (how & 3u));
    uint16_t session = how & 4u ? (uint16_t)next() : fwr_server.session;
    fwr_link_put(&frame[0], session, 2);
    fwr_link_put(&frame[2], how & 8u ? (uint16_t)(sequence + next() * 256u) : sequence, 2);
    frame[4] = kind;
    frame[5] = 0;
    for (uint32_t i = 0; i < size; i++) {
        frame[FWR_LINK_HEADER + i] = next();
    }
    fwr_link_close(frame, FWR_LINK_HEADER + size);
    hand_over(fwr_server_feed, frame, FWR_LINK_HEADER + size + FWR_LINK_CRC);
}

static void steps(const struct fwr_model *model, int knows_stack)
{
    fwr_server_start(model);
    if (knows_stack) { /* disabled from here on, since painting would reach the fuzzer's stack */
        info.stack_low = fuzz.stack;
        info.stack_high = fuzz.stack + 64;
    }
    while (fuzz.size > 0) {
        uint8_t kind = next();
        uint8_t size = next();
        if (kind < 16 || kind >= 0xf0) {
            take_sound_frame(kind, size);
        } else {
            for (uint32_t i = 0; i < size && fuzz.size > 0; i++) {
                fwr_server_feed(next());
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fwr_operator operators[OPERATORS];
    static struct fwr_tensor inputs[1], outputs[2];
    static struct fwr_model model;
    uint8_t kind;
    fuzz.data = data;
    fuzz.size = size;
    fuzz.runs = 0;
    memset(&fuzz.reader, 0, sizeof fuzz.reader);
    memset(&fwr_server, 0, sizeof fwr_server);
    kind = next();
    input = kind & 1u ? 0 : calloc(1, INPUT_BYTES);
    row = kind & 1u ? calloc(1, ROW_BYTES) : 0;
    output = calloc(1, INPUT_BYTES);
    params = kind & 2u ? calloc(1, PARAM_BYTES) : 0;
    inputs[0] = (struct fwr_tensor){"in", input, row ? ROWS * ROW_BYTES : INPUT_BYTES, FWR_INT8};
    outputs[0] = (struct fwr_tensor){"out", output, INPUT_BYTES, FWR_INT8};
    outputs[1] = (struct fwr_tensor){"of four bytes", output, 4, FWR_INT32};
    model = (struct fwr_model){.name = "fuzz",
                               .inputs = inputs,
                               .outputs = outputs,
                               .input_count = 1,
                               .output_count = 2,
                               .operator_count = OPERATORS,
                               .flags = (uint16_t)((kind >> 2) & 1u),
                               .run = run,
                               .params = params,
                               .params_size_bytes = PARAM_BYTES,
                               .row_size_bytes = ROW_BYTES,
                               .row = row,
                               .feed = row ? feed : 0,
                               .operators = operators};
    if (setjmp(fuzz.end) == 0) {
        steps(&model, (kind & 8u) != 0);
    }
    info.stack_low = info.stack_high = 0;
    free(input);
    free(row);
    free(output);
    free(params);
    return 0;
}
