/* secure.c: the secure world of an MPS2 AN505 (Cortex-M33), which owns the model.
 *
 * It divides memory (SAU, memory and peripheral protection controllers), protects itself with its
 * MPU, and starts the non-secure world. That world sees neither weights nor activations: it calls
 * secure_classify through a veneer, and other accesses raise a SecureFault.
 */
#include <arm_cmse.h>
#include <stdint.h>
#include <string.h>

#include "digits.h"
#include "memory.h"
#include "veneer.h"

#define REG(address) (*(volatile uint32_t *)(address))
#define CPACR REG(0xE000ED88u)
#define NSACR REG(0xE000ED8Cu)
#define SHCSR REG(0xE000ED24u)
#define SHCSR_SECUREFAULT (1u << 19)
#define SAU_CTRL REG(0xE000EDD0u)
#define SAU_RNR REG(0xE000EDD8u)
#define SAU_RBAR REG(0xE000EDDCu)
#define SAU_RLAR REG(0xE000EDE0u)
#define MPU_CTRL REG(0xE000ED94u)
#define MPU_RNR REG(0xE000ED98u)
#define MPU_RBAR REG(0xE000ED9Cu)
#define MPU_RLAR REG(0xE000EDA0u)
#define MPU_MAIR0 REG(0xE000EDC0u)
#define VTOR_NS REG(0xE002ED08u)
#define NSCCFG REG(0x50080014u)     /* IoT Kit: code may contain veneers */
#define UART_IS_NS REG(0x50080084u) /* APBNSPPCEXP1 */
#define MPC_SSRAM1 0x58007000u      /* memory protection controllers */
#define MPC_SSRAM3 0x58009000u
#define UART_DATA REG(0x50200000u) /* secure alias of the console */
#define UART_STATE REG(0x50200004u)

extern uint32_t data_load[], data_start[], data_end[], bss_start[], bss_end[], stack_top[];
extern uint8_t veneers_start[], veneers_end[];

typedef void nonsecure_function(void) __attribute__((cmse_nonsecure_call));

static uint8_t sram[DIGITS_SRAM_SIZE] __attribute__((aligned(DIGITS_SRAM_ALIGN)));

/* The non-secure world cannot change the image after the check: the model reads a copy. */
__attribute__((cmse_nonsecure_entry)) int32_t secure_classify(const int8_t *image, int8_t *scores)
{
    const struct digits_workspace_pools pools = {.sram = sram};
    struct digits_inputs in;
    struct digits_outputs out;

    if (cmse_check_address_range((void *)image, DIGITS_IMAGE_SIZE,
                                 CMSE_NONSECURE | CMSE_MPU_READ) == NULL ||
        cmse_check_address_range(scores, DIGITS_DIGIT_SIZE, CMSE_NONSECURE | CMSE_MPU_READWRITE) ==
            NULL) {
        return VENEER_E_POINTER;
    }
    digits_map_io(&pools, &in, &out);
    memcpy(in.image, image, DIGITS_IMAGE_SIZE);
    const int32_t status = digits_run(&in, &out, &pools);
    if (status == DIGITS_OK) {
        memcpy(scores, out.digit, DIGITS_DIGIT_SIZE);
    }
    memset(sram, 0, sizeof sram);
    return status;
}

static void sau_region(uint32_t number, uint32_t start, uint32_t end, uint32_t is_callable)
{
    SAU_RNR = number;
    SAU_RBAR = start;
    SAU_RLAR = ((end - 1u) & ~31u) | is_callable << 1 | 1u;
}

/* Regions of whole 32 bytes; `access` is 1 for read and write, 3 for reading. */
static void mpu_region(uint32_t number, uint32_t start, uint32_t end, uint32_t access,
                       uint32_t memory_type, uint32_t never_executed)
{
    MPU_RNR = number;
    MPU_RBAR = start | access << 1 | never_executed;
    MPU_RLAR = ((end - 1u) & ~31u) | memory_type << 1 | 1u;
}

/* Give the blocks of the upper part of a memory to the non-secure world; `part` 2 is half of it. */
static void release_memory(uint32_t controller, uint32_t part)
{
    const uint32_t words = REG(controller + 0x10u) + 1u;
    for (uint32_t word = part == 2u ? words / 2u : 0u; word < words; word++) {
        REG(controller + 0x18u) = word;
        REG(controller + 0x1Cu) = 0xFFFFFFFFu;
    }
}

static void divide_memory(void)
{
    release_memory(MPC_SSRAM1, 2u);
    release_memory(MPC_SSRAM3, 1u);
    UART_IS_NS = 1u << 5;
    NSCCFG = 1u;
    sau_region(0, NS_CODE, NS_CODE + NS_CODE_SIZE, 0);
    sau_region(1, NS_RAM, NS_RAM + NS_RAM_SIZE, 0);
    sau_region(2, 0x40000000u, 0x50000000u, 0);
    sau_region(3, (uint32_t)veneers_start, (uint32_t)veneers_end, 1);
    SAU_CTRL = 1u;
    MPU_MAIR0 = 0x000000FFu | 0x00000400u; /* type 0: normal memory, type 1: device */
    mpu_region(0, S_CODE, S_CODE + S_CODE_SIZE, 3, 0, 0);
    mpu_region(1, S_RAM, S_RAM + S_RAM_SIZE, 1, 0, 1);
    mpu_region(2, NS_CODE, NS_CODE + NS_CODE_SIZE, 3, 0, 1);
    mpu_region(3, NS_RAM, NS_RAM + NS_RAM_SIZE, 1, 0, 1);
    mpu_region(4, 0x40000000u, 0x60000000u, 1, 1, 1);
    MPU_CTRL = 1u; /* without a default map: every other address faults */
    SHCSR |= SHCSR_SECUREFAULT;
    __asm__ volatile("dsb\n\tisb");
}

static void write_text(const char *text)
{
    for (; *text != '\0'; text++) {
        while ((UART_STATE & 1u) != 0) {}
        UART_DATA = (uint8_t)*text;
    }
}

static void secure_fault(void)
{
    UART_IS_NS = 0;
    write_text("secure fault\n");
    for (;;) {}
}

static void stop(void)
{
    for (;;) {}
}

void reset(void)
{
    const uint32_t *from = data_load;
    for (uint32_t *to = data_start; to < data_end; to++) {
        *to = *from++;
    }
    for (uint32_t *to = bss_start; to < bss_end; to++) {
        *to = 0;
    }
    CPACR |= 0xFu << 20; /* the FPU: the veneer clears its registers */
    NSACR |= 3u << 10;   /* exceptions of the non-secure world may save them */
    divide_memory();
    VTOR_NS = NS_CODE;
    const uint32_t *const vectors = (const uint32_t *)NS_CODE;
    __asm__ volatile("msr msp_ns, %0" ::"r"(vectors[0]));
    ((nonsecure_function *)cmse_nsfptr_create(vectors[1]))();
    stop();
}

__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))stack_top, reset, stop, stop, stop, stop, stop, secure_fault,
};
