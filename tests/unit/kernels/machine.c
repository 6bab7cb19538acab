/* Runs every trial on every case and writes the results to the file results.bin by semihosting. */
#include "machine.h"

enum { OPEN = 0x01, WRITE = 0x05, EXIT = 0x18 };
enum { WRITE_BINARY = 5, APPLICATION_EXIT = 0x20026, RUN_TIME_ERROR = 0x20023 };
enum { UNTOUCHED = 0xA5 };

extern uint8_t stack_high[];
static uint8_t results[CASES * RESULT_BYTES_MAX] __attribute__((aligned(16)));

void start(void);
void fault(void);
void run_all(void);

#if defined(USES_HTIF)

#include "spike_start.h"

static uintptr_t call_host(uintptr_t operation, uintptr_t argument)
{
    const uintptr_t *given = (const uintptr_t *)argument;
    switch (operation) {
    case OPEN:
        return open_file(given[0], given[2] + 1);
    case WRITE:
        return call_proxy(HOST_WRITE, given[0], given[1], given[2], 0, 0);
    default:
        return call_proxy(HOST_EXIT, argument != APPLICATION_EXIT, 0, 0, 0, 0);
    }
}

#elif defined(__riscv)

static uintptr_t call_host(uintptr_t operation, uintptr_t argument)
{
    register uintptr_t a0 __asm__("a0") = operation;
    register uintptr_t a1 __asm__("a1") = argument;
    __asm__ volatile(".balign 16\n\t"
                     ".option push\n\t"
                     ".option norvc\n\t"
                     "slli zero, zero, 0x1f\n\t"
                     "ebreak\n\t"
                     "srai zero, zero, 7\n\t"
                     ".option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
}

__attribute__((naked, section(".vectors"))) void start(void)
{
    __asm__ volatile("la sp, stack_high\n\t"
                     "la t0, fault\n\t"
                     ".option push\n\t"
                     ".option arch, +zicsr\n\t"
                     "csrw mtvec, t0\n\t"
                     "li t0, 0x2600\n\t" /* enables vectors and floats */
                     "csrs mstatus, t0\n\t"
                     ".option pop\n\t"
                     "tail %0" ::"i"(run_all)); /* the data may be far */
}

#elif defined(__XTENSA__)

#include "lx106_start.h"

static uintptr_t call_host(uintptr_t operation, uintptr_t argument)
{
    const uintptr_t *given = (const uintptr_t *)argument;
    switch (operation) {
    case OPEN:
        return simulator_call(HOST_OPEN, given[0], CREATE_AND_WRITE, ALL_MAY_READ);
    case WRITE:
        return simulator_call(HOST_WRITE, given[0], given[1], given[2]);
    default:
        return simulator_call(HOST_EXIT, argument != APPLICATION_EXIT, 0, 0);
    }
}

#else

static uintptr_t call_host(uintptr_t operation, uintptr_t argument)
{
    register uintptr_t r0 __asm__("r0") = operation;
    register uintptr_t r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_high, start, fault, fault, fault, fault, fault, fault,
    fault,      fault, fault, fault, fault, fault, fault, fault,
};

void start(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* enables floats and vectors */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
    run_all();
}

#endif

static void stop(uintptr_t reason)
{
    (void)call_host(EXIT, reason);
    for (;;) {}
}

__attribute__((aligned(4))) void fault(void)
{
    stop(RUN_TIME_ERROR);
}

void run_all(void)
{
    const uintptr_t opened[3] = {(uintptr_t)"results.bin", WRITE_BINARY, 11};
    const uintptr_t file = call_host(OPEN, (uintptr_t)opened);
    for (uint32_t t = 0; t < TRIALS; ++t) {
        const uint32_t size = trials[t].result_bytes;
        for (uint32_t i = 0; i < CASES * size; ++i) {
            results[i] = UNTOUCHED;
        }
        for (uint32_t c = 0; c < CASES; ++c) {
            trials[t].run(cases[c], results + c * size);
        }
        const uintptr_t written[3] = {file, (uintptr_t)results, CASES * size};
        (void)call_host(WRITE, (uintptr_t)written);
    }
    stop(APPLICATION_EXIT);
}
