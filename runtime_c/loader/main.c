/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: main() of the loader. */
#include "fwr_loader.h"

int main(void)
{
    fwr_loader();
}
