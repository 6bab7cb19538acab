/* tiny_app.c: glue and model in one file; doubles its input.
 *
 * The second output counts the runs since start-up, which reveals repeated runs. The first input
 * value can trigger faults. TINY_IN_PLACE places the output over the input; TINY_PARAMS takes the
 * factor from a parameter block.
 */
#include "fwr.h"

#if FWR_PROFILE
#include "fwr_probe.h"
#define TINY_PROBE FWR_PROBE
#else
#define TINY_PROBE(i, phase, data, size_bytes) ((void)0)
#endif

#if FWR_ABI != 2
#error "made for another runtime"
#endif

#define SIZE 600
#define ASKS_TO_HANG (-128)
#define ASKS_TO_CRASH (-127)
#define ASKS_TO_FAIL (-126)

static int8_t input[SIZE];
#ifdef TINY_IN_PLACE
#define output input
#define FLAGS FWR_MODEL_CONSUMES_INPUT
#else
static int8_t output[SIZE];
#define FLAGS 0
#endif
static int32_t runs;

#ifdef TINY_PARAMS
static int8_t params[100];
#define FACTOR params[99]
#else
#define FACTOR 2
#endif

static void double_all(void)
{
    for (int32_t i = 0; i < SIZE; i++) {
        output[i] = (int8_t)((input[i] * FACTOR) & 0x7f);
    }
}

static int32_t run(void)
{
    static volatile int32_t always = 1;
    if (input[0] == ASKS_TO_FAIL) {
        return -7;
    }
    TINY_PROBE(0, 0, output, SIZE);
    while (input[0] == ASKS_TO_HANG && always) {}
    if (input[0] == ASKS_TO_CRASH) {
#if defined(__arm__)
        __asm__ volatile(".short 0xde00"); /* permanently undefined */
#elif defined(__riscv)
        __asm__ volatile("unimp"); /* defined to be illegal */
#elif defined(__XTENSA__)
        __asm__ volatile("ill");
#else
        static volatile uintptr_t nowhere = 16;
        *(volatile int *)nowhere = 1;
#endif
    }
    double_all();
    TINY_PROBE(0, 1, output, SIZE);
    TINY_PROBE(1, 0, &runs, sizeof runs);
    runs++;
    TINY_PROBE(1, 1, &runs, sizeof runs);
    return 0;
}

static const struct fwr_tensor inputs[] = {{"serving_default_x:0", input, sizeof input, FWR_INT8}};
static const struct fwr_tensor outputs[] = {
    {"doubled/a name longer than one first frame of sixty-four bytes could carry", output,
     sizeof output, FWR_INT8},
    {"runs", &runs, sizeof runs, FWR_INT32},
};

#if FWR_PROFILE
static struct fwr_operator operators[2];
#endif

const struct fwr_model fwr_app_model = {
    .name = "tiny",
    .id = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255},
    .inputs = inputs,
    .outputs = outputs,
    .input_count = 1,
    .output_count = 2,
    .operator_count = 2,
    .flags = FLAGS,
    .run = run,
#ifdef TINY_PARAMS
    .params = params,
    .params_size_bytes = sizeof params,
#endif
#if FWR_PROFILE
    .operators = operators,
#endif
};
