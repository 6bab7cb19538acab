/* board.h: a console of bytes. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

void board_init(void);
/* Returns the next byte, or -1 if there is none. */
int32_t board_read(void);
void board_write(uint8_t byte);

#endif
