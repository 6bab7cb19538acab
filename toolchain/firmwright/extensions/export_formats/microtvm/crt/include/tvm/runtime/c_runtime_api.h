/* SPDX-License-Identifier: Apache-2.0 */
/* c_runtime_api.h: names of microTVM's runtime that programs with the AOT C interface use. */
#ifndef TVM_RUNTIME_C_RUNTIME_API_H_
#define TVM_RUNTIME_C_RUNTIME_API_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TVM_DLL
#define TVM_DLL
#endif

typedef void *TVMFunctionHandle;

#endif
