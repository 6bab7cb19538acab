/* SPDX-License-Identifier: Apache-2.0 */
/* dlpack.h: the device of DLPack that microTVM's platform functions take. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#include <stdint.h>

typedef enum {
    kDLCPU = 1,
} DLDeviceType;

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

#endif
