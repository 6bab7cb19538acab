/* board.c: the console on standard input and output. */
#include "board.h"

#include <stdio.h>

void board_init(void)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
}

int32_t board_read(void)
{
    return getchar();
}

void board_write(uint8_t byte)
{
    (void)putchar(byte);
}
