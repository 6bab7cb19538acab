/* SPDX-License-Identifier: Apache-2.0 */
/* stack_allocator.c: every block takes a multiple of the alignment, so all of them are aligned. */
#include <tvm/runtime/crt/stack_allocator.h>

#define ALIGNMENT ((size_t)TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES)

tvm_crt_error_t StackMemoryManager_Init(tvm_workspace_t *tvm_runtime_workspace,
                                        uint8_t *g_aot_memory, size_t workspace_size)
{
    const size_t skipped = (size_t)(-(uintptr_t)g_aot_memory % ALIGNMENT);
    if (skipped > workspace_size) {
        return kTvmErrorPlatformNoMemory;
    }
    tvm_runtime_workspace->workspace = g_aot_memory + skipped;
    tvm_runtime_workspace->workspace_size = workspace_size - skipped;
    tvm_runtime_workspace->next_alloc = tvm_runtime_workspace->workspace;
    return kTvmErrorNoError;
}

tvm_crt_error_t StackMemoryManager_Allocate(tvm_workspace_t *tvm_runtime_workspace, int32_t nbytes,
                                            void **current_alloc)
{
    const tvm_workspace_t *space = tvm_runtime_workspace;
    const size_t left = space->workspace_size - (size_t)(space->next_alloc - space->workspace);
    if (nbytes < 0 || (size_t)nbytes > left) {
        return kTvmErrorPlatformNoMemory;
    }
    const size_t size = ((size_t)nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size > left) {
        return kTvmErrorPlatformNoMemory;
    }
    *current_alloc = space->next_alloc;
    tvm_runtime_workspace->next_alloc += size;
    return kTvmErrorNoError;
}

tvm_crt_error_t StackMemoryManager_Free(tvm_workspace_t *tvm_runtime_workspace, void *ptr)
{
    uint8_t *block = ptr;
    if (block < tvm_runtime_workspace->workspace || block >= tvm_runtime_workspace->next_alloc) {
        return kTvmErrorPlatformStackAllocBadFree;
    }
    tvm_runtime_workspace->next_alloc = block;
    return kTvmErrorNoError;
}
