/* microtvm_platform.c: a platform of microTVM whose workspace is a stack in its own memory, as in
 * TVM's templates. Reads inputs from stdin, writes outputs to stdout.
 */
#include <stdio.h>
#include <tvm/runtime/crt/logging.h>
#include <tvm/runtime/crt/platform.h>
#include <tvm/runtime/crt/stack_allocator.h>

#include "tvmgen_default.h"

static uint8_t memory[TVMGEN_DEFAULT_WORKSPACE_SIZE + TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES];
static tvm_workspace_t workspace;

tvm_crt_error_t TVMPlatformMemoryAllocate(size_t num_bytes, DLDevice dev, void **out_ptr)
{
    (void)dev;
    return StackMemoryManager_Allocate(&workspace, (int32_t)num_bytes, out_ptr);
}

tvm_crt_error_t TVMPlatformMemoryFree(void *ptr, DLDevice dev)
{
    (void)dev;
    return StackMemoryManager_Free(&workspace, ptr);
}

/* Blocks are aligned, a full workspace and a wrong block are errors, and all memory returns. */
static int check_allocator(void)
{
    void *first = NULL, *second = NULL, *none = &none;
    if (StackMemoryManager_Init(&workspace, memory, 3) != kTvmErrorPlatformNoMemory &&
        workspace.workspace_size > 3) {
        return 1;
    }
    if (StackMemoryManager_Init(&workspace, memory + 1, sizeof memory - 1) != kTvmErrorNoError) {
        return 2;
    }
    const int32_t size = (int32_t)workspace.workspace_size;
    if (StackMemoryManager_Allocate(&workspace, 5, &first) != kTvmErrorNoError ||
        StackMemoryManager_Allocate(&workspace, 7, &second) != kTvmErrorNoError ||
        (uintptr_t)first % TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES != 0 ||
        (uint8_t *)second - (uint8_t *)first != TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES) {
        return 3;
    }
    if (StackMemoryManager_Allocate(&workspace, size - 31, &none) != kTvmErrorPlatformNoMemory ||
        StackMemoryManager_Allocate(&workspace, -1, &none) != kTvmErrorPlatformNoMemory ||
        none != &none) {
        return 4;
    }
    if (StackMemoryManager_Free(&workspace, memory) != kTvmErrorPlatformStackAllocBadFree ||
        StackMemoryManager_Free(&workspace, second) != kTvmErrorNoError ||
        StackMemoryManager_Free(&workspace, second) != kTvmErrorPlatformStackAllocBadFree ||
        StackMemoryManager_Free(&workspace, first) != kTvmErrorNoError) {
        return 5;
    }
    return workspace.next_alloc == workspace.workspace ? 0 : 6;
}

int main(void)
{
    static int8_t input[TVMGEN_DEFAULT_IMAGE_SIZE], output[TVMGEN_DEFAULT_DIGIT_SIZE];
    struct tvmgen_default_inputs inputs = {.image = input};
    struct tvmgen_default_outputs outputs = {.digit = output};
    const int failed = check_allocator();
    if (failed != 0) {
        return failed;
    }
    (void)StackMemoryManager_Init(&workspace, memory, sizeof memory);
    while (fread(input, 1, sizeof input, stdin) == sizeof input) {
        if (tvmgen_default_run(&inputs, &outputs) != 0 ||
            fwrite(output, 1, sizeof output, stdout) != sizeof output) {
            return 7;
        }
    }
    return workspace.next_alloc == workspace.workspace ? 0 : 8;
}
