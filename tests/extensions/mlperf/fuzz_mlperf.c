/* fuzz_mlperf.c: fuzzes the commands of the MLPerf Tiny firmware, under ASan and UBSan.
 *
 * An input is a task (the kind of samples, of results) and a sequence of commands with hostile
 * words and numbers, whole, interrupted or among noise. The sample, the model's input and its
 * output are separate memory, so that ASan detects any overflow.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_choices.h"

#define main fuzzed_main
int fuzzed_main(void);
#include "fwr_mlperf.c"
#undef main

#define VALUES 24u
#define OUTPUTS 5u
#define COMMAND_MAX 700u

static struct {
    char command[COMMAND_MAX];
    uint32_t size;
    uint32_t at;
    uint32_t runs;
    uint64_t ticks;
    jmp_buf end;
} fuzz;

/* ---- A model and a task -------------------------------------------------------------------- */

static int8_t *input, *output, *quantised_input;
static uint8_t *sample;
static struct fwr_tensor inputs[1], outputs[1];

static int32_t run(void)
{
    for (uint32_t i = 0; i < outputs[0].size_bytes; i++) {
        output[i] = (int8_t)(output[i] + input[i % VALUES] + 1);
    }
    if (++fuzz.runs > 100u) {
        return -1;
    }
    static const int32_t errors[] = {-1, 7, INT32_MIN, INT32_MAX};
    uint32_t kind = choose_below(64);
    return kind == 1u ? errors[choose_below(4)] : 0;
}

/* The firmware's constants, which each input replaces: the linker knows them by the other name. */
struct fwr_model fuzzed_model __asm__("fwr_app_model");
struct fwr_mlperf_task fuzzed_task __asm__("fwr_mlperf_task");

static void make_task(uint8_t kind)
{
    static const float scales[] = {1.0f, 0.5f, 1e-30f, 1e30f, 0.00390625f, 7.25f, 1e-3f, 3e38f};
    uint8_t sort = kind % 3u;
    uint32_t bytes = sort == 2u ? 4u * VALUES : VALUES;
    input = calloc(1, VALUES);
    output = calloc(1, sort == 2u ? VALUES : OUTPUTS);
    sample = calloc(1, bytes);
    quantised_input = sort == 2u ? calloc(1, VALUES) : 0;
    inputs[0] = (struct fwr_tensor){"in", input, VALUES, FWR_INT8};
    outputs[0] = (struct fwr_tensor){"out", output, sort == 2u ? VALUES : OUTPUTS, FWR_INT8};
    fuzzed_model = (struct fwr_model){.name = "fuzz",
                                      .inputs = inputs,
                                      .outputs = outputs,
                                      .input_count = kind >= 250u ? 0 : 1,
                                      .output_count = 1,
                                      .run = run};
    fuzzed_task = (struct fwr_mlperf_task){
        .vendor = "vendor",
        .model = "fuzz01",
        .sample = sample,
        .quantised = quantised_input,
        .sample_bytes = bytes,
        .units_per_second = 1000000u,
        .input = (uint8_t)(sort + 1u),
        .results = sort == 2u ? FWR_MLPERF_ERROR : FWR_MLPERF_OUTPUTS,
        .streams = kind >> 3 & 1u,
        .energy = kind >> 4 & 1u,
        .flushes = kind >> 5 & 1u,
        .in = {scales[choose_below(8)], choose_byte() - 128},
        .out = {scales[choose_below(8)], choose_byte() - 128},
    };
}

/* ---- A port -------------------------------------------------------------------------------- */

static struct fwr_port_info info = {"fuzz", "", "us", 1, 1, 0, 0, 0};

void fwr_port_init(void) {}

const struct fwr_port_info *fwr_port_info(void)
{
    return &info;
}

static void choose_step(void);

int32_t fwr_port_byte_in(void)
{
    if (fuzz.at == fuzz.size) {
        if (choices.size == 0) {
            longjmp(fuzz.end, 1);
        }
        fuzz.at = fuzz.size = 0;
        choose_step();
        return -1;
    }
    return (uint8_t)fuzz.command[fuzz.at++];
}

void fwr_port_byte_out(uint8_t byte)
{
    (void)byte;
}

uint64_t fwr_port_counter(void)
{
    fuzz.ticks += 1u + fuzz.ticks / 2u;
    return fuzz.ticks;
}

void fwr_port_counter_align(void) {}

int32_t fwr_port_set_baud(uint32_t baud, int now)
{
    (void)baud;
    (void)now;
    return 0;
}

void fwr_port_trace_pin(int running)
{
    (void)running;
}

FWR_NORETURN void fwr_port_reset(void)
{
    abort();
}

FWR_NORETURN void fwr_port_fatal(void)
{
    longjmp(fuzz.end, 2);
}

/* ---- Commands ------------------------------------------------------------------------------ */

static void send(const char *text, size_t size)
{
    for (size_t i = 0; i < size && fuzz.size < COMMAND_MAX; i++) {
        fuzz.command[fuzz.size++] = text[i];
    }
}

static void send_text(const char *text)
{
    send(text, strlen(text));
}

static void choose_number_word(void)
{
    static const char *const numbers[] = {
        "0",
        "1",
        "2",
        "3",
        "10",
        "23",
        "24",
        "25",
        "95",
        "96",
        "97",
        "80",
        "99999999999999999999",
        "4294967295",
        "4294967296",
        "4294967297",
        "2147483648",
        "-1",
        "0x10",
        "1e9",
        "",
        "\xff",
        "007",
        "1,2",
    };
    send_text(" ");
    send_text(numbers[choose_below(sizeof numbers / sizeof numbers[0])]);
}

/* Sample bytes: floats with special values too. */
static void choose_digits(void)
{
    static const char *const values[] = {
        "00000000", "0000807f", "000080ff", "0000c07f", "ffff7f7f", "ffff7fff",
        "01000000", "0000803f", "00",       "ff",       "7",        "8f0",
        "FF",       "g0",       "0`",       "\x10\x10",
    };
    uint32_t count = 1u + choose_below(10);
    send_text(" ");
    for (uint32_t i = 0; i < count; i++) {
        send_text(values[choose_below(choices.size % 4u == 0 ? 16u : 8u)]);
    }
}

/* A whole sample: its announcement, and pieces as long as a command may be. */
static void send_sample(void)
{
    static const char hex[] = "0123456789abcdef";
    send_text(fuzzed_task.sample_bytes > VALUES ? "db load 96%" : "db load 24%");
    for (uint32_t i = 0; i < fuzzed_task.sample_bytes; i++) {
        uint8_t byte = choose_byte();
        const char digits[] = {hex[byte >> 4], hex[byte & 15u]};
        if (i % 38u == 0) {
            send_text("db ");
        }
        send(digits, 2);
        if (i % 38u == 37u || i + 1u == fuzzed_task.sample_bytes) {
            send_text("%");
        }
    }
}

static void choose_step(void)
{
    static const char *const words[] = {
        "name",     "profile", "timestamp", "help",  "results", "start", "stop", "print_detections",
        "db print", "db load", "db",        "infer", "infer 1", "bogus", "",     "db  ",
        "NAME",
    };
    uint8_t kind = choose_byte();
    if (kind < 32u) {
        send_sample();
        send_text("infer 1 0%results%");
        return;
    }
    if (kind >= 232u) { /* noise, or too long */
        uint32_t size = choose_byte();
        for (uint32_t i = 0; i < size; i++) {
            char byte = (char)(kind >= 244u ? 'a' : choose_byte());
            send(&byte, 1);
        }
    }
    send_text(words[choose_below(sizeof words / sizeof words[0])]);
    for (uint32_t i = choose_below(3); i > 0; i--) {
        if (kind & 1u) {
            choose_number_word();
        } else {
            choose_digits();
        }
    }
    if (kind % 16u != 15u) { /* else the next command arrives in the same one */
        send_text(kind % 16u == 14u ? "\r\n%%" : "%");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin_choices(data, size);
    fuzz.size = fuzz.at = fuzz.runs = 0;
    fuzz.ticks = 0;
    memset(&harness, 0, sizeof harness);
    memset(&stream, 0, sizeof stream);
    make_task(choose_byte());
    if (setjmp(fuzz.end) == 0) {
        fuzzed_main();
    }
    static const struct fwr_fault fault = {FWR_FAULT_CORTEX_M, {1, 0xffffffffu}};
    if (setjmp(fuzz.end) == 0) {
        fwr_fault(&fault);
    }
    free(input);
    free(output);
    free(sample);
    free(quantised_input);
    return 0;
}
