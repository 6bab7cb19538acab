/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_main.c: main() of a firmware, which serves the image's only model. */
#include "fwr.h"

int main(void)
{
    fwr_serve(&fwr_app_model);
    return 0;
}
