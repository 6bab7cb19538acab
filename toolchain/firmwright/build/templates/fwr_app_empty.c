/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_app_empty.c: an empty model, to measure the size that a model adds. */
#include "fwr.h"

static int32_t run(void)
{
    return 0;
}

const struct fwr_model fwr_app_model = {
    .name = "empty",
    .run = run,
};
