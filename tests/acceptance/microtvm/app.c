/* app.c: a program in the shape of microTVM's: it knows the names of tvmgen_default.h and nothing
 * else of the model. Reads inputs from stdin, writes outputs to stdout. With APP_STACK its
 * workspace is a stack in its own memory, as TVM's runtime has it.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tvmgen_default.h"

#if APP_STACK
#define ALIGNMENT 16u
static uint8_t aot_memory[TVMGEN_DEFAULT_WORKSPACE_SIZE + ALIGNMENT] __attribute__((aligned(16)));
static size_t used;

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes, int dtype_code_hint,
                               int dtype_bits_hint);
int TVMBackendFreeWorkspace(int device_type, int device_id, void *ptr);

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes, int dtype_code_hint,
                               int dtype_bits_hint)
{
    (void)device_type, (void)device_id, (void)dtype_code_hint, (void)dtype_bits_hint;
    size_t size = ((size_t)nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size > sizeof aot_memory - used) {
        return NULL;
    }
    used += size;
    return &aot_memory[used - size];
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void *ptr)
{
    (void)device_type, (void)device_id;
    used = (size_t)((uint8_t *)ptr - aot_memory);
    return 0;
}
#endif

static int8_t input[1 + TVMGEN_DEFAULT_IMAGE_SIZE]; /* from its second byte: at an odd address */
static int8_t output[TVMGEN_DEFAULT_DIGIT_SIZE];

int main(void)
{
    struct tvmgen_default_inputs inputs = {.image = &input[1]};
    struct tvmgen_default_outputs outputs = {.digit = output};
    int8_t before[TVMGEN_DEFAULT_IMAGE_SIZE];
    while (fread(before, 1, sizeof before, stdin) == sizeof before) {
        memcpy(&input[1], before, sizeof before);
        int ret_val = tvmgen_default_run(&inputs, &outputs);
        if (ret_val != 0 || memcmp(&input[1], before, sizeof before) != 0) {
            return 1;
        }
        if (fwrite(output, 1, sizeof output, stdout) != sizeof output) {
            return 2;
        }
    }
    struct tvmgen_default_inputs none = {.image = NULL};
    return tvmgen_default_run(&none, &outputs) < 0 ? 0 : 3;
}
