/* mps2_an386.c: start-up, vectors and UART of Arm's MPS2 AN386 (application note DAI0386). */
#include "board.h"

#define UART(offset) (*(volatile uint32_t *)(0x40004000u + (offset)))
#define UART_DATA UART(0x00u)
#define UART_STATE UART(0x04u) /* bit 0: transmit buffer full, bit 1: receive buffer full */
#define UART_CTRL UART(0x08u)
#define UART_BAUDDIV UART(0x10u)
#define CPACR (*(volatile uint32_t *)0xE000ED88u)

extern uint32_t data_load[], data_start[], data_end[], bss_start[], bss_end[], stack_top[];
int main(void);
void SVC_Handler(void);
void PendSV_Handler(void);
void SysTick_Handler(void);

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
    CPACR |= 0xFu << 20; /* the FPU */
    __asm__ volatile("dsb\n\tisb");
    (void)main();
    stop();
}

/* Handlers 11, 14 and 15 are FreeRTOS's. */
__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))stack_top,
    reset,
    stop,
    stop,
    stop,
    stop,
    stop,
    stop,
    stop,
    stop,
    stop,
    SVC_Handler,
    stop,
    stop,
    PendSV_Handler,
    SysTick_Handler,
};

void board_init(void)
{
    UART_BAUDDIV = 25000000u / 115200u;
    UART_CTRL = 3u;
}

int32_t board_read(void)
{
    return (UART_STATE & 2u) != 0 ? (int32_t)(UART_DATA & 0xFFu) : -1;
}

void board_write(uint8_t byte)
{
    while ((UART_STATE & 1u) != 0) {}
    UART_DATA = byte;
}
