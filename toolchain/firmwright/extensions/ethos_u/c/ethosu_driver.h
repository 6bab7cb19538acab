/* SPDX-License-Identifier: Apache-2.0 */
/* ethosu_driver.h: the interface of Arm's driver for Ethos-U, in front of a model of the NPU.
 *
 * Functions, structures and results are those of the public ethos-u-core-driver, so firmware is
 * linked with either. This one computes on the core, without an NPU; see npu.h.
 */
#ifndef ETHOSU_DRIVER_H
#define ETHOSU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ETHOSU_MODEL 1 /* not Arm's driver */

#define ETHOSU_DRIVER_VERSION_MAJOR 0
#define ETHOSU_DRIVER_VERSION_MINOR 16
#define ETHOSU_DRIVER_VERSION_PATCH 0

#define ETHOSU_SEMAPHORE_WAIT_FOREVER (UINT64_MAX)

#ifndef ETHOSU_SEMAPHORE_WAIT_INFERENCE
#define ETHOSU_SEMAPHORE_WAIT_INFERENCE ETHOSU_SEMAPHORE_WAIT_FOREVER
#endif

enum ethosu_job_state { ETHOSU_JOB_IDLE = 0, ETHOSU_JOB_RUNNING, ETHOSU_JOB_DONE };

enum ethosu_job_result {
    ETHOSU_JOB_RESULT_OK = 0,
    ETHOSU_JOB_RESULT_TIMEOUT,
    ETHOSU_JOB_RESULT_ERROR
};

struct ethosu_job {
    volatile enum ethosu_job_state state;
    volatile enum ethosu_job_result result;
    const void *custom_data_ptr;
    int custom_data_size;
    const uint64_t *base_addr;
    const size_t *base_addr_size;
    int num_base_addr;
    void *user_arg;
};

/* The model has no registers; `config` is the NPU's configuration word, 0 before its first job. */
struct ethosu_device {
    uint32_t config;
    uint32_t secure;
    uint32_t privileged;
};

struct ethosu_driver {
    struct ethosu_device dev;
    struct ethosu_driver *next;
    struct ethosu_job job;
    void *semaphore;
    uint64_t fast_memory;
    size_t fast_memory_size;
    uint32_t power_request_counter;
    bool reserved;
    uint8_t basep_flush_mask;
    uint8_t basep_invalidate_mask;
};

struct ethosu_driver_version {
    uint8_t major;
    uint8_t minor;
    uint8_t patch;
};

struct ethosu_id {
    uint32_t version_status;
    uint32_t version_minor;
    uint32_t version_major;
    uint32_t product_major;
    uint32_t arch_patch_rev;
    uint32_t arch_minor_rev;
    uint32_t arch_major_rev;
};

struct ethosu_config {
    uint32_t macs_per_cc; /* log2 of the multiply-accumulates per cycle */
    uint32_t cmd_stream_version;
    uint32_t custom_dma;
};

struct ethosu_hw_info {
    struct ethosu_id version;
    struct ethosu_config cfg;
};

/* ---- Weak functions, which an application may define ----------------------------------------- */

void ethosu_flush_dcache(uint32_t *p, size_t bytes);
void ethosu_invalidate_dcache(uint32_t *p, size_t bytes);
void *ethosu_mutex_create(void);
void ethosu_mutex_destroy(void *mutex);
int ethosu_mutex_lock(void *mutex);
int ethosu_mutex_unlock(void *mutex);
void *ethosu_semaphore_create(void); /* the model calls none of the semaphores */
void ethosu_semaphore_destroy(void *sem);
int ethosu_semaphore_take(void *sem, uint64_t timeout);
int ethosu_semaphore_give(void *sem);
void ethosu_inference_begin(struct ethosu_driver *drv, void *user_arg);
void ethosu_inference_end(struct ethosu_driver *drv, void *user_arg);
uint64_t ethosu_address_remap(uint64_t address, int index);

/* ---- The driver ------------------------------------------------------------------------------ */

/* 0, or a negative number. `base_address` has no meaning for the model. */
int ethosu_init(struct ethosu_driver *drv, void *const base_address, const void *fast_memory,
                const size_t fast_memory_size, uint32_t secure_enable, uint32_t privilege_enable);
void ethosu_deinit(struct ethosu_driver *drv);
int ethosu_soft_reset(struct ethosu_driver *drv);
int ethosu_request_power(struct ethosu_driver *drv);
void ethosu_release_power(struct ethosu_driver *drv);
void ethosu_irq_handler(struct ethosu_driver *drv);
void ethosu_get_driver_version(struct ethosu_driver_version *ver);
void ethosu_get_hw_info(struct ethosu_driver *drv, struct ethosu_hw_info *hw);

/* Which base addresses are cleaned before a job and invalidated after it, one bit each. */
void ethosu_set_basep_cache_mask(struct ethosu_driver *drv, uint8_t flush_mask,
                                 uint8_t invalidate_mask);

/* Runs a custom operator's payload; 0, or -1 after an error. Base address 0 is that of the weights,
 * 1 of the arena, 2 of the fast memory. */
int ethosu_invoke_v3(struct ethosu_driver *drv, const void *custom_data_ptr,
                     const int custom_data_size, uint64_t *const base_addr,
                     const size_t *base_addr_size, const int num_base_addr, void *user_arg);

#define ethosu_invoke(drv, custom_data_ptr, custom_data_size, base_addr, base_addr_size, \
                      num_base_addr) \
    ethosu_invoke_v3(drv, custom_data_ptr, custom_data_size, base_addr, base_addr_size, \
                     num_base_addr, 0)

/* Starts a payload; `ethosu_wait` returns its result: 0, 1 while it runs unless `block`, -1 after
 * an error, -2 without a job. The model has finished when this returns. */
int ethosu_invoke_async(struct ethosu_driver *drv, const void *custom_data_ptr,
                        const int custom_data_size, uint64_t *const base_addr,
                        const size_t *base_addr_size, const int num_base_addr, void *user_arg);
int ethosu_wait(struct ethosu_driver *drv, bool block);

/* A driver that is not in use. Without `ethosu_init` it is one of the model's. */
struct ethosu_driver *ethosu_reserve_driver(void);
void ethosu_release_driver(struct ethosu_driver *drv);

static inline int ethosu_invoke_v2(const void *custom_data_ptr, const int custom_data_size,
                                   uint64_t *const base_addr, const size_t *base_addr_size,
                                   const int num_base_addr)
{
    int result = -1;
    struct ethosu_driver *drv = ethosu_reserve_driver();
    if (drv != NULL) {
        result = ethosu_invoke_v3(drv, custom_data_ptr, custom_data_size, base_addr, base_addr_size,
                                  num_base_addr, 0);
        ethosu_release_driver(drv);
    }
    return result;
}

/* The reason of the last error, or "". Arm's driver has no such function. */
const char *ethosu_model_error(void);

#ifdef __cplusplus
}
#endif

#endif
