/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_mlperf.c: main() of the MLPerf Tiny firmware. See fwr_mlperf.h. */
#include "fwr_mlperf.h"

#include <string.h>

#include "fwr.h"
#include "port/fwr_port.h"

#define COMMAND_BYTES 80u
#define WARMUPS 10u
#define BYTES_A_LINE 8u
#define ACTIVATIONS_MAX 256u
#define DETECTIONS_MAX 64u
#define DETECTION_THRESHOLD 115 /* of the first output as int8, as in the reference */
#define ENERGY_BAUD 9600u
#define MARKS_A_SECOND \
    10000u /* a timestamp resolution of 100 microseconds; the benchmark requires 62.5 */

static const struct fwr_mlperf_task *const task = &fwr_mlperf_task;
static const struct fwr_model *const model = &fwr_app_model;

static struct {
    char command[COMMAND_BYTES];
    uint32_t length;   /* characters of the command received so far */
    uint32_t expected; /* size announced by `db load` */
    uint32_t loaded;   /* bytes received of them */
    uint8_t flip;      /* conversion of each sample byte: XOR with 0x80 for int8 */
    uint8_t has_results;
} harness;

/* Scores and detections of the wake word between `start` and `stop`; further ones are dropped. */
static struct {
    uint64_t begin_units;
    uint32_t activations_count;
    uint32_t detections_count;
    int8_t activations[ACTIVATIONS_MAX];
    uint32_t detections_ms[DETECTIONS_MAX];
    uint8_t is_started;
} stream;

/* ---- Output ---------------------------------------------------------------------------------- */

static void say(const char *text)
{
    for (; *text != '\0'; text++) {
        fwr_port_byte_out((uint8_t)*text);
    }
}

static void say_line(const char *before, const char *text, const char *after)
{
    say(before);
    say(text);
    say(after);
    say("\r\n");
}

static void say_number(uint64_t value)
{
    char digits[21];
    char *at = &digits[sizeof digits - 1u];
    *at = '\0';
    do {
        *--at = (char)('0' + (char)(value % 10u));
        value /= 10u;
    } while (value != 0);
    say(at);
}

static void say_count(const char *before, uint64_t value, const char *after)
{
    say(before);
    say_number(value);
    say(after);
    say("\r\n");
}

/* Prints three decimals, like printf's %0.3f. "inf" is also a value whose thousandths exceed 64
 * bits: only hostile samples have such errors. */
static void say_real(float value)
{
    double scaled = (double)value * 1000.0;
    if (scaled < 0.0) {
        say("-");
        scaled = -scaled;
    }
    if (!(scaled < 1.8e19)) {
        say(scaled > 0.0 ? "inf" : "nan");
        return;
    }
    uint64_t thousandths = (uint64_t)(scaled + 0.5);
    uint32_t fraction = (uint32_t)(thousandths % 1000u);
    say_number(thousandths / 1000u);
    say(fraction < 10u ? ".00" : fraction < 100u ? ".0" : ".");
    say_number(fraction);
}

/* Time since start-up in counter units. */
static uint64_t time_units(void)
{
    const struct fwr_port_info *port = fwr_port_info();
    return fwr_port_counter() * port->counter_scale_num / port->counter_scale_den;
}

/* In energy mode a power analyzer measures between two pulses; each is long enough to be seen. */
static void mark_time(void)
{
    uint64_t begin = time_units();
    fwr_port_trace_pin(1);
    while (time_units() - begin < task->units_per_second / MARKS_A_SECOND) {}
    fwr_port_trace_pin(0);
}

static void say_time(void)
{
    uint64_t units = time_units();
    if (task->energy) {
        mark_time();
        return;
    }
    uint64_t seconds = units / task->units_per_second;
    uint64_t rest = units % task->units_per_second;
    say_count("m-lap-us-", seconds * 1000000u + rest * 1000000u / task->units_per_second, "");
}

/* ---- Samples ------------------------------------------------------------------------------- */

static int32_t hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void load_begin(uint32_t size)
{
    if (size > task->sample_bytes) {
        say_count("a sample of this model has at most ", task->sample_bytes, " bytes");
        return;
    }
    harness.expected = size;
    harness.loaded = 0;
    harness.flip = 0;
    say_count("m-[Expecting ", size, " bytes]");
}

static void load_bytes(const char *digits)
{
    if (strlen(digits) % 2u != 0) {
        say("e-[Insufficent number of hex digits]\r\n");
        return;
    }
    for (; *digits != '\0'; digits += 2) {
        int32_t high = hex_digit(digits[0]);
        int32_t low = hex_digit(digits[1]);
        if (high < 0 || low < 0) {
            say_line("e-[Not hex: ", digits, "]");
            return;
        }
        if (harness.loaded < harness.expected) {
            task->sample[harness.loaded++] = (uint8_t)(high << 4 | low);
            if (harness.loaded == harness.expected) {
                say("m-load-done\r\n");
            }
        }
    }
}

static void print_sample(void)
{
    static const char hex[] = "0123456789abcdef";
    for (uint32_t i = 0; i < harness.expected; i++) {
        uint8_t byte = task->sample[i] ^ harness.flip;
        char shown[] = {'-', hex[byte >> 4], hex[byte & 15u], '\0'};
        say(i % BYTES_A_LINE == 0 ? "m-buffer" : "");
        say(shown);
        say((i + 1u) % BYTES_A_LINE == 0 || i + 1u == harness.expected ? "\r\n" : "");
    }
}

static float float_at(uint32_t index)
{
    float value;
    memcpy(&value, &task->sample[4u * index], sizeof value);
    return value;
}

static int8_t quantised(float value)
{
    float scaled = value / task->in.scale;
    int32_t zero_point = task->in.zero_point;
    if (!(scaled < (float)(127 - zero_point))) {
        return 127;
    }
    if (scaled <= (float)(-128 - zero_point)) {
        return -128;
    }
    int32_t whole = (int32_t)(scaled < 0.0f ? scaled - 0.5f : scaled + 0.5f); /* ties away from 0 */
    return (int8_t)(whole + zero_point);
}

/* Converts the sample to the model's input type, once before a measurement. */
static void prepare_input(void)
{
    if (task->input == FWR_MLPERF_UINT8 && harness.flip == 0) {
        harness.flip = 0x80;
        for (uint32_t i = 0; i < task->sample_bytes; i++) {
            task->sample[i] ^= 0x80; /* as int8: minus 128 */
        }
    }
    if (task->input == FWR_MLPERF_FLOAT32) {
        for (uint32_t i = 0; i < task->sample_bytes / 4u; i++) {
            task->quantised[i] = quantised(float_at(i));
        }
    }
}

/* ---- Inference ----------------------------------------------------------------------------- */

static int32_t infer_once(void)
{
    const struct fwr_tensor *input = &model->inputs[0];
    const void *from = task->quantised != 0 ? (const void *)task->quantised : task->sample;
    memcpy(input->data, from, input->size_bytes);
    return model->run();
}

static int32_t infer_often(uint32_t count)
{
    int32_t status = 0;
    for (uint32_t i = 0; i < count && status == 0; i++) {
        status = infer_once();
    }
    return status;
}

static float output_at(uint32_t index)
{
    const int8_t *values = (const int8_t *)model->outputs[0].data;
    return (float)(values[index] - task->out.zero_point) * task->out.scale;
}

static void say_results(void)
{
    uint32_t count = model->outputs[0].size_bytes;
    say("m-results-[");
    if (task->results == FWR_MLPERF_ERROR) {
        float sum = 0.0f;
        for (uint32_t i = 0; i < count; i++) {
            float difference = output_at(i) - float_at(i);
            sum += difference * difference;
        }
        say_real(sum / (float)count);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            say(i == 0 ? "" : ",");
            say_real(output_at(i));
        }
    }
    say("]\r\n");
}

static void record_activation(void)
{
    int8_t score = *(const int8_t *)model->outputs[0].data;
    uint64_t units = time_units() - stream.begin_units;
    if (stream.activations_count < ACTIVATIONS_MAX) {
        stream.activations[stream.activations_count++] = score;
    }
    if (score > DETECTION_THRESHOLD && stream.detections_count < DETECTIONS_MAX) {
        uint64_t seconds = units / task->units_per_second;
        uint64_t rest = units % task->units_per_second;
        uint64_t ms = seconds * 1000u + rest * 1000u / task->units_per_second;
        stream.detections_ms[stream.detections_count++] = (uint32_t)ms;
    }
}

static void infer(uint32_t count, uint32_t warmups)
{
    if (count == 0) {
        say("e-[infer needs at least one iteration]\r\n");
        return;
    }
    if (model->input_count == 0) { /* without a model, to measure the size of the runtime */
        say("e-[No model]\r\n");
        return;
    }
    prepare_input();
    harness.has_results = 0;
    say_count("m-warmup-start-", warmups, "");
    int32_t status = infer_often(warmups);
    say("m-warmup-done\r\n");
    say_count("m-infer-start-", count, "");
    say_time();
    status = status != 0 ? status : infer_often(count);
    say_time();
    say("m-infer-done\r\n");
    if (status != 0) {
        say_count("e-[The model returned ", (uint64_t)(status < 0 ? -(int64_t)status : status),
                  "]");
        return;
    }
    harness.has_results = 1;
    if (stream.is_started) {
        record_activation();
    }
    say_results();
}

/* ---- Commands ------------------------------------------------------------------------------ */

/* Returns the next word from `*at`, terminated in place, or NULL. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " ");
    if (*word == '\0') {
        return 0;
    }
    *at = word + strcspn(word, " ");
    if (**at != '\0') {
        *(*at)++ = '\0';
    }
    return word;
}

/* The number at the start of the word; larger ones are UINT32_MAX instead of their remainder. */
static uint32_t number_or(const char *word, uint32_t otherwise)
{
    if (word == 0) {
        return otherwise;
    }
    uint32_t value = 0;
    for (; *word >= '0' && *word <= '9'; word++) {
        value = value < UINT32_MAX / 10u ? 10u * value + (uint32_t)(*word - '0') : UINT32_MAX;
    }
    return value;
}

static void do_db(char *rest)
{
    const char *word = next_word(&rest);
    if (word == 0) {
        say("e-[Command 'db' needs load, print or hex digits]\r\n");
    } else if (strcmp(word, "load") == 0) {
        load_begin(number_or(next_word(&rest), 0));
    } else if (strcmp(word, "print") == 0) {
        print_sample();
    } else {
        load_bytes(word);
    }
}

static void do_infer(char *rest)
{
    uint32_t count = number_or(next_word(&rest), 1);
    infer(count, number_or(next_word(&rest), WARMUPS));
}

static void do_results(void)
{
    if (harness.has_results) {
        say_results();
    } else {
        say("e-[No results: infer first]\r\n");
    }
}

static void start_detecting(void)
{
    if (stream.is_started) {
        say("e-[Already started]\r\n");
        return;
    }
    memset(&stream, 0, sizeof stream);
    stream.is_started = 1;
    stream.begin_units = time_units();
    say("Listening to the windows of infer.\r\n");
}

static void stop_detecting(void)
{
    if (!stream.is_started) {
        say("Already stopped.\r\n");
        return;
    }
    stream.is_started = 0;
    say("Streaming stopped.\r\ntarget activations: \r\n[");
    for (uint32_t i = 0; i < stream.activations_count; i++) {
        int32_t score = stream.activations[i];
        say(i == 0 ? "" : ", ");
        say(score < 0 ? "-" : "");
        say_number((uint64_t)(score < 0 ? -score : score));
    }
    say("]\r\n");
}

static void print_detections(void)
{
    say("Detection Timestamps (ms)\r\n");
    for (uint32_t i = 0; i < stream.detections_count; i++) {
        say_count("", stream.detections_ms[i], ",");
    }
}

/* Returns whether the word is a command of the streaming wake word. */
static uint8_t do_stream(const char *word)
{
    if (!task->streams) {
        return 0;
    }
    if (strcmp(word, "start") == 0) {
        start_detecting();
    } else if (strcmp(word, "stop") == 0) {
        stop_detecting();
    } else if (strcmp(word, "print_detections") == 0) {
        print_detections();
    } else {
        return 0;
    }
    return 1;
}

static void dispatch(char *command)
{
    char *rest = command;
    const char *word = next_word(&rest);
    if (word == 0) {
        return; /* a lone '%' */
    }
    if (strcmp(word, "name") == 0) {
        say_line("m-name-dut-[", task->vendor, "]");
    } else if (strcmp(word, "profile") == 0) {
        say("m-profile-[ULPMark for tinyML Firmware V0.0.1]\r\n");
        say_line("m-model-[", task->model, "]");
    } else if (strcmp(word, "timestamp") == 0) {
        say_time();
    } else if (strcmp(word, "db") == 0) {
        do_db(rest);
    } else if (strcmp(word, "infer") == 0) {
        do_infer(rest);
    } else if (strcmp(word, "results") == 0) {
        do_results();
    } else if (strcmp(word, "help") == 0) {
        say("m-[name profile timestamp help; db load N, db HH.., db print; infer N [W=10]; "
            "results");
        say(task->streams ? "; start stop print_detections]\r\n" : "]\r\n");
    } else if (!do_stream(word)) {
        say_line("e-[Unknown command: ", word, "]");
    }
}

static void say_ready(void)
{
    say("m-ready\r\n");
    if (task->flushes) {
        fwr_port_byte_out(0);
    }
}

static void take_byte(char c)
{
    if (c == '\r' || c == '\n') {
        return;
    }
    if (c != '%') {
        /* One character too many is kept to detect an overlong command. */
        if (harness.length < COMMAND_BYTES - 1u) {
            harness.command[harness.length] = c;
        }
        harness.length += harness.length < COMMAND_BYTES;
        return;
    }
    if (harness.length >= COMMAND_BYTES) {
        say("e-[Command too long]\r\n");
    } else {
        harness.command[harness.length] = '\0';
        dispatch(harness.command);
    }
    harness.length = 0;
    say_ready();
}

int main(void)
{
    fwr_port_init();
    if (model->init != 0) {
        model->init();
    }
    if (task->energy) {
        (void)fwr_port_set_baud(ENERGY_BAUD, 1);
    }
    say_line("m-timestamp-mode-", task->energy ? "energy" : "performance", "");
    say_time();
    say("m-init-done\r\n");
    say_ready();
    for (;;) {
        int32_t byte = fwr_port_byte_in();
        if (byte >= 0) {
            take_byte((char)byte);
        }
    }
}

/* ---- Faults -------------------------------------------------------------------------------- */

FWR_NORETURN void fwr_fault(const struct fwr_fault *fault)
{
    say("\r\ne-[Fault:");
    for (uint32_t i = 0; i < FWR_FAULT_WORDS; i++) {
        say(" ");
        say_number(fault->words[i]);
    }
    say("]\r\n");
    fwr_port_fatal();
}
