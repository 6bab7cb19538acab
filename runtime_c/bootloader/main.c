/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: main() of the bootloader. */
#include "fwr_bootloader.h"

int main(void)
{
    fwr_bootloader();
}
