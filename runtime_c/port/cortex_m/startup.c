/* SPDX-License-Identifier: Apache-2.0 */
/* startup.c: vectors, reset and faults of all Cortex-M cores from M0 to M55.
 *
 * Reset enables the FPU or MVE, copies .data, clears .bss and calls main. The stack is at the
 * bottom of RAM, so an overflow does not overwrite data; a stack limit register, the MPU or the bus
 * turns it into a fault. Every unexpected exception ends in the fault report.
 */
#include "cortex_m.h"
#include "fwr_sections.h"

int main(void);

void fwr_reset_handler(void);
static void fault_handler(void);
static void unused_interrupt(void);
void fwr_fault_report(const uint32_t *frame);

/* ---- Vectors -------------------------------------------------------------------------------- */

struct vectors {
    const void *stack;
    void (*handlers[15])(void);
};

extern const struct vectors fwr_vectors;

__attribute__((section(".vectors"), used)) const struct vectors fwr_vectors = {
    fwr_ld_stack_high,
    {
        fwr_reset_handler, /* 1 reset */
        fault_handler,     /* 2 NMI */
        fault_handler,     /* 3 HardFault; includes the other faults, which are not enabled */
        fault_handler,     /* 4 MemManage */
        fault_handler,     /* 5 BusFault */
        fault_handler,     /* 6 UsageFault */
        fault_handler,     /* 7 SecureFault */
        fault_handler,     /* 8 reserved */
        fault_handler,     /* 9 reserved */
        fault_handler,     /* 10 reserved */
        fault_handler,     /* 11 SVCall */
        fault_handler,     /* 12 DebugMonitor */
        fault_handler,     /* 13 reserved */
        fault_handler,     /* 14 PendSV */
        fwr_systick_isr,   /* 15 SysTick */
    },
};

/* Boards with another counter never enable this interrupt. */
static void unused_interrupt(void) {}
void fwr_systick_isr(void) __attribute__((weak, alias("unused_interrupt")));

/* ---- Reset ---------------------------------------------------------------------------------- */

static void enable_units(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    SCB_CPACR |= SCB_CPACR_FPU_FULL;
#endif
#if defined(__ARM_FEATURE_MVE)
    SCB_CCR |= SCB_CCR_LOB;
#endif
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}

/* A boot ROM may have set its own vector table. */
static void set_vectors(void)
{
#if defined(FWR_VECTORS_MOVE)
    SCB_VTOR = (uint32_t)&fwr_vectors;
#endif
}

static void set_stack_limit(const uint32_t *limit)
{
#if defined(__ARM_ARCH_8M_MAIN__) || defined(__ARM_ARCH_8_1M_MAIN__)
    __asm__ volatile("msr msplim, %0" ::"r"(limit));
#else
    (void)limit;
#endif
}

/* Armv7-M has no stack limit; the MPU, if present, blocks the unused addresses below the stack. */
static void guard_stack(void)
{
#if (defined(__ARM_ARCH_7M__) || defined(__ARM_ARCH_7EM__)) && FWR_STACK_GUARD_BYTES > 0
    uint32_t log2_size = 31u - (uint32_t)__builtin_clz(FWR_STACK_GUARD_BYTES);

    if (MPU_TYPE == 0) {
        return;
    }
    MPU_RNR = 0;
    MPU_RBAR = (uint32_t)fwr_ld_stack_low - FWR_STACK_GUARD_BYTES;
    MPU_RASR = MPU_RASR_XN | (log2_size - 1u) << 1 | MPU_RASR_ENABLE;
    MPU_CTRL = MPU_CTRL_PRIVDEFENA | MPU_CTRL_ENABLE;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
}

void fwr_reset_handler(void)
{
    set_vectors();
    enable_units();
    set_stack_limit(fwr_ld_stack_low);
    guard_stack();
    fwr_fill_sections();
    (void)main();
    fwr_port_fatal();
}

/* ---- Faults --------------------------------------------------------------------------------- */

/* The core has pushed eight words. If they are in the upper half of the stack, there is room below;
 * otherwise the report uses the top of the stack, well above the words it reads. Half of the
 * smallest possible stack is large enough. */
__attribute__((naked)) static void fault_handler(void)
{
    __asm__ volatile("mov  r0, sp\n\t"
                     "ldr  r1, =fwr_ld_stack_middle\n\t"
                     "cmp  r0, r1\n\t"
                     "bhs  1f\n\t"
                     "ldr  r1, =fwr_ld_stack_high\n\t"
                     "mov  sp, r1\n\t"
                     "1:\n\t"
                     "ldr  r1, =fwr_fault_report\n\t"
                     "bx   r1\n\t"
                     ".ltorg");
}

/* After a stack overflow the frame may not be in memory; its eight words are reported as zero. */
static int frame_is_on_stack(const uint32_t *frame)
{
    return frame >= fwr_ld_stack_low && frame + 8 <= fwr_ld_stack_high;
}

__attribute__((used)) void fwr_fault_report(const uint32_t *frame)
{
    struct fwr_fault fault = {FWR_FAULT_CORTEX_M, {0}};

    set_stack_limit(0);
    if (frame_is_on_stack(frame)) {
        for (uint32_t i = 0; i < 8; i++) {
            fault.words[i] = frame[i];
        }
    }
#if !defined(__ARM_ARCH_6M__)
    fault.words[8] = SCB_CFSR;
    fault.words[9] = SCB_HFSR;
    fault.words[10] = SCB_MMFAR;
    fault.words[11] = SCB_BFAR;
#endif
#if FWR_WATCHDOG
    if (fwr_watchdog_has_expired()) {
        fwr_watchdog_expired(&fault);
    }
#endif
    fwr_fault(&fault);
}
