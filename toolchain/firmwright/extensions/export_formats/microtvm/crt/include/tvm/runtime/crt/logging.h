/* SPDX-License-Identifier: Apache-2.0 */
/* logging.h: the log of a microTVM platform, which the application defines. */
#ifndef TVM_RUNTIME_CRT_LOGGING_H_
#define TVM_RUNTIME_CRT_LOGGING_H_

#include <tvm/runtime/crt/platform.h>

#ifdef __cplusplus
extern "C" {
#endif

void TVMLogf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif

#endif
