/* nonsecure.c: the non-secure world: reads commands from the console and calls the secure model.
 *
 * 'd' and 64 bytes of an image are answered with "digit 7"; 'p' passes a pointer to secure memory
 * to the veneer, which refuses it; 'r' reads secure memory, which raises a SecureFault.
 */
#include <stdint.h>

#include "memory.h"
#include "veneer.h"

#define UART(offset) (*(volatile uint32_t *)(0x40200000u + (offset)))
#define UART_DATA UART(0x00u)
#define UART_STATE UART(0x04u)
#define UART_CTRL UART(0x08u)
#define UART_BAUDDIV UART(0x10u)

extern uint32_t stack_top[];

static void write_byte(char byte)
{
    while ((UART_STATE & 1u) != 0) {}
    UART_DATA = (uint8_t)byte;
}

static void write_text(const char *text)
{
    for (; *text != '\0'; text++) {
        write_byte(*text);
    }
}

static uint8_t next_byte(void)
{
    while ((UART_STATE & 2u) == 0) {}
    return (uint8_t)UART_DATA;
}

static void classify(void)
{
    int8_t image[64];
    int8_t scores[10];
    for (uint32_t i = 0; i < sizeof image; i++) {
        image[i] = (int8_t)next_byte();
    }
    if (secure_classify(image, scores) != VENEER_OK) {
        write_text("error\n");
        return;
    }
    uint32_t best = 0;
    for (uint32_t i = 1; i < sizeof scores; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    write_text("digit ");
    write_byte((char)('0' + best));
    write_byte('\n');
}

void reset(void)
{
    int8_t scores[10];
    UART_BAUDDIV = 20000000u / 115200u;
    UART_CTRL = 3u;
    for (;;) {
        switch (next_byte()) {
        case 'd':
            classify();
            break;
        case 'p':
            write_text(secure_classify((const int8_t *)S_RAM, scores) == VENEER_E_POINTER
                           ? "refused\n"
                           : "error\n");
            break;
        case 'r':
            write_byte((char)*(volatile uint8_t *)S_RAM);
            break;
        default:
            break;
        }
    }
}

static void stop(void)
{
    for (;;) {}
}

__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))stack_top,
    reset,
    stop,
    stop,
};
