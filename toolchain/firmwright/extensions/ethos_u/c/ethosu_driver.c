/* SPDX-License-Identifier: Apache-2.0 */
/* ethosu_driver.c: see ethosu_driver.h. */
#include "ethosu_driver.h"

#include "npu.h"

#include <string.h>

#define WEAK __attribute__((weak))

#define PAYLOAD_START 0x31504f43u /* "COP1" */
#define ACTION_CONFIG 1u
#define ACTION_COMMANDS 2u
#define ACTION_NOP 5u

#define SCRATCH_INDEX 1
#define FAST_MEMORY_INDEX 2

static struct npu npu; /* one for all drivers: a job ends before another starts */
static struct ethosu_driver own_driver;
static struct ethosu_driver *drivers;
static void *mutex;

/* ---- Weak functions -------------------------------------------------------------------------- */

WEAK void ethosu_flush_dcache(uint32_t *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

WEAK void ethosu_invalidate_dcache(uint32_t *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

WEAK void *ethosu_mutex_create(void)
{
    static uint8_t none;
    return &none;
}

WEAK void ethosu_mutex_destroy(void *lock)
{
    (void)lock;
}

WEAK int ethosu_mutex_lock(void *lock)
{
    (void)lock;
    return 0;
}

WEAK int ethosu_mutex_unlock(void *lock)
{
    (void)lock;
    return 0;
}

WEAK void ethosu_inference_begin(struct ethosu_driver *drv, void *user_arg)
{
    (void)drv;
    (void)user_arg;
}

WEAK void ethosu_inference_end(struct ethosu_driver *drv, void *user_arg)
{
    (void)drv;
    (void)user_arg;
}

WEAK uint64_t ethosu_address_remap(uint64_t address, int index)
{
    (void)index;
    return address;
}

/* ---- Drivers --------------------------------------------------------------------------------- */

int ethosu_init(struct ethosu_driver *drv, void *const base_address, const void *fast_memory,
                const size_t fast_memory_size, uint32_t secure_enable, uint32_t privilege_enable)
{
    (void)base_address;
    memset(drv, 0, sizeof *drv);
    drv->dev.secure = secure_enable;
    drv->dev.privileged = privilege_enable;
    drv->fast_memory = (uintptr_t)fast_memory;
    drv->fast_memory_size = fast_memory_size;
    ethosu_set_basep_cache_mask(drv, 1u << SCRATCH_INDEX, 1u << SCRATCH_INDEX);
    mutex = mutex != NULL ? mutex : ethosu_mutex_create();
    (void)ethosu_mutex_lock(mutex);
    drv->next = drivers;
    drivers = drv;
    (void)ethosu_mutex_unlock(mutex);
    return 0;
}

void ethosu_deinit(struct ethosu_driver *drv)
{
    (void)ethosu_mutex_lock(mutex);
    struct ethosu_driver **link = &drivers;
    while (*link != NULL && *link != drv) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = drv->next;
    }
    (void)ethosu_mutex_unlock(mutex);
}

struct ethosu_driver *ethosu_reserve_driver(void)
{
    if (drivers == NULL) {
        (void)ethosu_init(&own_driver, NULL, NULL, 0, 0, 0);
    }
    (void)ethosu_mutex_lock(mutex);
    struct ethosu_driver *drv = drivers;
    while (drv != NULL && drv->reserved) {
        drv = drv->next;
    }
    if (drv != NULL) {
        drv->reserved = true;
    }
    (void)ethosu_mutex_unlock(mutex);
    return drv;
}

void ethosu_release_driver(struct ethosu_driver *drv)
{
    if (drv != NULL && drv->reserved) {
        if (drv->job.state != ETHOSU_JOB_IDLE) {
            (void)ethosu_wait(drv, true);
        }
        drv->reserved = false;
    }
}

int ethosu_soft_reset(struct ethosu_driver *drv)
{
    (void)drv;
    return 0;
}

int ethosu_request_power(struct ethosu_driver *drv)
{
    drv->power_request_counter++;
    return 0;
}

void ethosu_release_power(struct ethosu_driver *drv)
{
    if (drv->power_request_counter > 0) {
        drv->power_request_counter--;
    }
}

void ethosu_irq_handler(struct ethosu_driver *drv)
{
    (void)drv;
}

void ethosu_get_driver_version(struct ethosu_driver_version *ver)
{
    *ver = (struct ethosu_driver_version){ETHOSU_DRIVER_VERSION_MAJOR, ETHOSU_DRIVER_VERSION_MINOR,
                                          ETHOSU_DRIVER_VERSION_PATCH};
}

void ethosu_get_hw_info(struct ethosu_driver *drv, struct ethosu_hw_info *hw)
{
    *hw = (struct ethosu_hw_info){
        .version = {.arch_major_rev = 1, .arch_patch_rev = 6},
        .cfg = {.macs_per_cc = drv->dev.config & 15u},
    };
}

void ethosu_set_basep_cache_mask(struct ethosu_driver *drv, uint8_t flush_mask,
                                 uint8_t invalidate_mask)
{
    drv->basep_flush_mask = flush_mask;
    drv->basep_invalidate_mask = invalidate_mask;
}

const char *ethosu_model_error(void)
{
    return npu.error;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

static bool refuse(const char *reason)
{
    size_t length = strlen(reason);
    memcpy(npu.error, reason, length + 1);
    return false;
}

/* The NPU is the one that the payload was compiled for, unless it is defined at compile time. */
static bool configure(struct ethosu_driver *drv, uint32_t config)
{
    const struct npu_variant *variant = npu_find_variant(config);
    if (variant == NULL) {
        return refuse("the payload is for an unknown NPU");
    }
#if defined(ETHOSU_PRODUCT) && defined(ETHOSU_MACS)
    if (variant->product != ETHOSU_PRODUCT || 1u << variant->macs_log2 != ETHOSU_MACS) {
        return refuse("the payload is for another NPU than the modelled one");
    }
#endif
    drv->dev.config = config;
    npu.variant = *variant;
    return true;
}

static bool run_commands(struct ethosu_driver *drv, const uint32_t *stream, uint32_t words)
{
    const struct ethosu_job *job = &drv->job;
    if (drv->dev.config == 0) {
        return refuse("the payload does not name the NPU that it is for");
    }
    if ((uintptr_t)ethosu_address_remap((uintptr_t)stream, -1) % 16 != 0) {
        return refuse("the command stream is not aligned to 16 bytes");
    }
    for (int i = 0; i < job->num_base_addr; i++) {
        if (job->base_addr[i] % 16 != 0) {
            return refuse("a base address is not aligned to 16 bytes");
        }
        uint8_t *base = (uint8_t *)(uintptr_t)job->base_addr[i];
        if ((drv->basep_flush_mask & 1u << i) != 0) {
            ethosu_flush_dcache((uint32_t *)(void *)base, job->base_addr_size[i]);
        }
        npu.regions[i] = (struct npu_region){base, job->base_addr_size[i]};
    }
    drv->job.state = ETHOSU_JOB_RUNNING;
    (void)ethosu_request_power(drv);
    ethosu_inference_begin(drv, job->user_arg);
    bool is_done = npu_run(&npu, stream, words);
    drv->job.result = is_done ? ETHOSU_JOB_RESULT_OK : ETHOSU_JOB_RESULT_ERROR;
    drv->job.state = ETHOSU_JOB_DONE;
    return true; /* an error of the NPU is the result of the job */
}

/* One driver action at word `at`. Returns the next one's position, 0 after an error. */
static uint32_t act(struct ethosu_driver *drv, const uint32_t *words, uint32_t at, uint32_t count)
{
    uint32_t length = 0;
    switch (words[at] & 0xffu) {
    case ACTION_NOP:
        break;
    case ACTION_CONFIG:
        length = 2;
        break;
    case ACTION_COMMANDS:
        length = (words[at] >> 8 & 0xffu) << 16 | words[at] >> 16;
        break;
    default:
        return refuse("unknown driver action in the payload");
    }
    if (length > count - at - 1) {
        return refuse("the payload ends within a driver action");
    }
    bool is_done = true;
    if ((words[at] & 0xffu) == ACTION_CONFIG) {
        is_done = configure(drv, words[at + 1]);
    } else if (length > 0) {
        is_done = run_commands(drv, &words[at + 1], length);
    }
    return is_done ? at + 1 + length : 0;
}

static bool start(struct ethosu_driver *drv, uint64_t *base_addr)
{
    const struct ethosu_job *job = &drv->job;
    const uint32_t *words = job->custom_data_ptr;
    uint32_t count = (uint32_t)job->custom_data_size / 4u;
    if (job->custom_data_size < 4 || job->custom_data_size % 4 != 0 || words[0] != PAYLOAD_START) {
        return refuse("the payload is not one of Ethos-U: it does not begin with COP1");
    }
    if (job->num_base_addr < 0 || job->num_base_addr > NPU_REGIONS) {
        return refuse("more base addresses than regions");
    }
    if (drv->fast_memory != 0 && job->num_base_addr > FAST_MEMORY_INDEX) {
        if (job->base_addr_size[FAST_MEMORY_INDEX] > drv->fast_memory_size) {
            return refuse("the fast memory is too small");
        }
        base_addr[FAST_MEMORY_INDEX] = drv->fast_memory;
    }
    memset(&npu, 0, sizeof npu);
    uint32_t at = 1;
    while (at > 0 && at < count) {
        at = act(drv, words, at, count);
    }
    return at > 0;
}

int ethosu_invoke_async(struct ethosu_driver *drv, const void *custom_data_ptr,
                        const int custom_data_size, uint64_t *const base_addr,
                        const size_t *base_addr_size, const int num_base_addr, void *user_arg)
{
    if (drv->job.state != ETHOSU_JOB_IDLE) {
        return -1;
    }
    drv->job = (struct ethosu_job){
        .custom_data_ptr = custom_data_ptr,
        .custom_data_size = custom_data_size,
        .base_addr = base_addr,
        .base_addr_size = base_addr_size,
        .num_base_addr = num_base_addr,
        .user_arg = user_arg,
    };
    (void)ethosu_mutex_lock(mutex);
    bool is_started = start(drv, base_addr);
    (void)ethosu_mutex_unlock(mutex);
    if (!is_started) {
        drv->job = (struct ethosu_job){.state = ETHOSU_JOB_IDLE};
    }
    return is_started ? 0 : -1;
}

int ethosu_wait(struct ethosu_driver *drv, bool block)
{
    (void)block; /* a job is done when it has been started */
    if (drv->job.state == ETHOSU_JOB_IDLE) {
        return -2;
    }
    const struct ethosu_job job = drv->job;
    for (int i = 0; i < job.num_base_addr; i++) {
        if ((drv->basep_invalidate_mask & 1u << i) != 0) {
            ethosu_invalidate_dcache((uint32_t *)(uintptr_t)job.base_addr[i],
                                     job.base_addr_size[i]);
        }
    }
    ethosu_inference_end(drv, job.user_arg);
    ethosu_release_power(drv);
    drv->job = (struct ethosu_job){.state = ETHOSU_JOB_IDLE};
    return job.result == ETHOSU_JOB_RESULT_OK ? 0 : -1;
}

int ethosu_invoke_v3(struct ethosu_driver *drv, const void *custom_data_ptr,
                     const int custom_data_size, uint64_t *const base_addr,
                     const size_t *base_addr_size, const int num_base_addr, void *user_arg)
{
    if (ethosu_invoke_async(drv, custom_data_ptr, custom_data_size, base_addr, base_addr_size,
                            num_base_addr, user_arg) < 0) {
        return -1;
    }
    return ethosu_wait(drv, true);
}
