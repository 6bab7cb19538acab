/* SPDX-License-Identifier: Apache-2.0 */
/* crt_backend_api.c: the memory of a run is that of the application's platform functions. */
#include <tvm/runtime/c_backend_api.h>
#include <tvm/runtime/crt/platform.h>

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t nbytes, int dtype_code_hint,
                               int dtype_bits_hint)
{
    (void)dtype_code_hint;
    (void)dtype_bits_hint;
    const DLDevice device = {(DLDeviceType)device_type, device_id};
    void *block = NULL;
    if ((uint64_t)(size_t)nbytes != nbytes) {
        return NULL;
    }
    return TVMPlatformMemoryAllocate((size_t)nbytes, device, &block) == kTvmErrorNoError ? block
                                                                                         : NULL;
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void *ptr)
{
    const DLDevice device = {(DLDeviceType)device_type, device_id};
    return (int)TVMPlatformMemoryFree(ptr, device);
}
