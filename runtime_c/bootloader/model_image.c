/* SPDX-License-Identifier: Apache-2.0 */
/* model_image.c: the header of a model image for an application in another slot.
 *
 * It is linked without the runtime. The application calls `start` before using the model.
 */
#include "fwr_drivers.h"
#include "fwr_image.h"
#include "fwr_words.h"

const struct fwr_model *fwr_model_start(void);

__attribute__((section(".image"), used)) const struct fwr_image fwr_image = {
    FWR_IMAGE_MAGIC, FWR_ABI, 0, fwr_model_start, fwr_ld_ram, 0, 0,
};

const struct fwr_model *fwr_model_start(void)
{
    fwr_words_copy(fwr_ld_data_start, fwr_ld_data_end, fwr_ld_data_load);
    fwr_words_clear(fwr_ld_bss_start, fwr_ld_bss_end);
    return &fwr_app_model;
}
