/* SPDX-License-Identifier: Apache-2.0 */
/* cores_sse200.c: executes jobs on the second core of an SSE-200.
 *
 * Jobs pass through a ring buffer. The first core counts posted jobs, the second completed ones;
 * each count has one writer. Memory order: a job is in the ring before `posted` counts it, and its
 * results are in memory before `done` counts it (DMB on both sides). A waiting core sleeps with
 * WFI, and each count is followed by the other core's doorbell, an interrupt of the message
 * handling unit. The interrupt wakes the core and is never taken: interrupts are masked while a
 * core checks and falls asleep, and one that arrives in between ends the sleep at once. The caches
 * of an SSE-200 hold only instructions, so no cache maintenance is needed.
 *
 * The second core is held in reset until the first job. A fault stops it, and later waits return an
 * error.
 */
#include "cortex_m.h"

#include "fwr.h"

#define SYSCTL_INITSVTOR1 FWR_REG(FWR_CORES_BASE + 0x114u) /* vector table of the second core */
#define SYSCTL_CPUWAIT FWR_REG(FWR_CORES_BASE + 0x118u)    /* a set bit holds a core in reset */

/* Message handling unit 0: one doorbell word per core. */
#define MHU_RING(core) FWR_REG(0x50003004u + 0x10u * (core))
#define MHU_HUSH(core) FWR_REG(0x50003008u + 0x10u * (core))
#define MHU_INTERRUPT (1u << 6) /* of either core */
#define NVIC_ENABLE FWR_REG(0xE000E100u)
#define NVIC_DISABLE FWR_REG(0xE000E180u)
#define NVIC_FORGET FWR_REG(0xE000E280u)

#define RING_JOBS 8u
#define VECTORS_ALIGN 128 /* Armv8-M: the low bits of VTOR are zero */

struct job {
    void (*does)(uint32_t call, const void *argument);
    const void *argument;
    uint32_t call;
};

static struct {
    struct job ring[RING_JOBS];
    volatile uint32_t posted;
    volatile uint32_t done;
    volatile uint32_t stopped;
    uint32_t is_awake;
} core;

static uint32_t core_stack[FWR_CORE_STACK_BYTES / 4u] __attribute__((aligned(8)));

static void order_memory(void)
{
    __asm__ volatile("dmb" ::: "memory");
}

static void ring(uint32_t number)
{
    __asm__ volatile("dsb" ::: "memory");
    MHU_RING(number) = 1;
}

/* Sleeps until the doorbell of core `number` or another interrupt, with interrupts masked. */
static void sleep_until_ring(uint32_t number)
{
    __asm__ volatile("dsb\n\twfi" ::: "memory");
    MHU_HUSH(number) = 1;
    __asm__ volatile("dsb" ::: "memory");
    NVIC_FORGET = MHU_INTERRUPT;
}

/* ---- The second core ------------------------------------------------------------------------ */

FWR_NORETURN static void core_main(void)
{
    __asm__ volatile("msr msplim, %0\n\tcpsid i" ::"r"(core_stack));
    SCB_CPACR |= SCB_CPACR_FPU_FULL; /* without effect on a core without FPU */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    NVIC_ENABLE = MHU_INTERRUPT;
    for (;;) {
        while (core.posted == core.done) {
            sleep_until_ring(1);
        }
        order_memory();
        const struct job *job = &core.ring[core.done % RING_JOBS];
        job->does(job->call, job->argument);
        order_memory();
        core.done = core.done + 1u;
        ring(0);
    }
}

/* The stack may be full, so call nothing here. */
FWR_NORETURN static void core_fault(void)
{
    core.stopped = 1;
    MHU_RING(0) = 1;
    for (;;) {
        __asm__ volatile("wfi");
    }
}

static const struct {
    const void *stack;
    void (*handlers[15])(void);
} core_vectors __attribute__((aligned(VECTORS_ALIGN))) = {
    core_stack + FWR_CORE_STACK_BYTES / 4u,
    {
        core_main,  /* 1 reset */
        core_fault, /* 2 NMI */
        core_fault, /* 3 HardFault; includes the other faults, which are not enabled */
        core_fault, /* 4 MemManage */
        core_fault, /* 5 BusFault */
        core_fault, /* 6 UsageFault */
        core_fault, /* 7 SecureFault */
        core_fault, /* 8 reserved */
        core_fault, /* 9 reserved */
        core_fault, /* 10 reserved */
        core_fault, /* 11 SVCall */
        core_fault, /* 12 DebugMonitor */
        core_fault, /* 13 reserved */
        core_fault, /* 14 PendSV */
        core_fault, /* 15 SysTick, used by the first core */
    },
};

/* ---- The first core ------------------------------------------------------------------------- */

static void wake(void)
{
    if (core.is_awake == 0) {
        core.is_awake = 1;
        SYSCTL_INITSVTOR1 = (uint32_t)&core_vectors;
        order_memory();
        SYSCTL_CPUWAIT = 0;
    }
}

static int is_before(uint32_t count, uint32_t wanted)
{
    return (int32_t)(count - wanted) < 0;
}

static int32_t wait_until_done(uint32_t count)
{
    while (is_before(core.done, count) && core.stopped == 0) {
        uint32_t masked;
        __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(masked)::"memory");
        NVIC_ENABLE = MHU_INTERRUPT;
        if (is_before(core.done, count) && core.stopped == 0) {
            sleep_until_ring(0);
        }
        NVIC_DISABLE = MHU_INTERRUPT;
        __asm__ volatile("msr primask, %0\n\tisb" ::"r"(masked) : "memory");
    }
    order_memory();
    return core.stopped == 0 ? FWR_OK : FWR_E_FAULT;
}

int32_t fwr_port_core_start(void (*job)(uint32_t call, const void *argument), uint32_t call,
                            const void *argument)
{
    wake();
    const int32_t status = wait_until_done(core.posted - (RING_JOBS - 1u));
    if (status != FWR_OK) {
        return status;
    }
    core.ring[core.posted % RING_JOBS] = (struct job){job, argument, call};
    order_memory();
    core.posted = core.posted + 1u;
    ring(1);
    return FWR_OK;
}

/* The job is among the last ones, or it completed before they had room. */
int32_t fwr_port_core_wait(uint32_t call)
{
    const uint32_t posted = core.posted;
    const uint32_t first = posted > RING_JOBS ? posted - RING_JOBS : 0u;
    for (uint32_t count = posted; count != first; count--) {
        if (core.ring[(count - 1u) % RING_JOBS].call == call) {
            return wait_until_done(count);
        }
    }
    return core.stopped == 0 ? FWR_OK : FWR_E_FAULT;
}
