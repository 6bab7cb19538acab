/* SPDX-License-Identifier: Apache-2.0 */
/* error_codes.h: microTVM's errors of a platform: a category in bits 8 to 15, a number below. */
#ifndef TVM_RUNTIME_CRT_ERROR_CODES_H_
#define TVM_RUNTIME_CRT_ERROR_CODES_H_

typedef enum {
    kTvmErrorNoError = 0,
    kTvmErrorPlatformCheckFailure = 0x500,
    kTvmErrorPlatformMemoryManagerInitialized = 0x501,
    kTvmErrorPlatformShutdown = 0x502,
    kTvmErrorPlatformNoMemory = 0x503,
    kTvmErrorPlatformTimerBadState = 0x504,
    kTvmErrorPlatformStackAllocBadFree = 0x505,
    kTvmErrorFunctionCallNumArguments = 0x800,
    kTvmErrorFunctionCallWrongArgType = 0x801,
    kTvmErrorFunctionCallNotImplemented = 0x802,
    kTvmErrorFunctionCallInvalidArg = 0x803,
    kTvmErrorSystemErrorMask = -2147483647 - 1,
} tvm_crt_error_t;

#endif
