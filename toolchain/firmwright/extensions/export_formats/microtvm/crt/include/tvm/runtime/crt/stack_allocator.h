/* SPDX-License-Identifier: Apache-2.0 */
/* stack_allocator.h: memory of which the last block is freed first, by microTVM's names. */
#ifndef TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_
#define TVM_RUNTIME_CRT_STACK_ALLOCATOR_H_

#include <stddef.h>
#include <stdint.h>
#include <tvm/runtime/crt/error_codes.h>

#ifndef TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES
#define TVM_RUNTIME_ALLOC_ALIGNMENT_BYTES 16
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint8_t *next_alloc;   /* the first free byte, aligned */
    uint8_t *workspace;    /* the first aligned byte */
    size_t workspace_size; /* in bytes, from there */
} tvm_workspace_t;

/* Makes `g_aot_memory` an empty workspace, which begins at its first aligned byte. */
tvm_crt_error_t StackMemoryManager_Init(tvm_workspace_t *tvm_runtime_workspace,
                                        uint8_t *g_aot_memory, size_t workspace_size);

/* Returns kTvmErrorPlatformNoMemory, and no block, if `nbytes` do not fit. */
tvm_crt_error_t StackMemoryManager_Allocate(tvm_workspace_t *tvm_runtime_workspace, int32_t nbytes,
                                            void **current_alloc);

/* Frees the block at `ptr` and those after it. Returns kTvmErrorPlatformStackAllocBadFree if
 * there is no allocated block at `ptr`. */
tvm_crt_error_t StackMemoryManager_Free(tvm_workspace_t *tvm_runtime_workspace, void *ptr);

#ifdef __cplusplus
}
#endif

#endif
