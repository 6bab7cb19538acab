/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: an application that confirms its images to MCUboot; it replaces runtime/fwr_main.c.
 *
 * An image that MCUboot has swapped in for a test returns to the secondary slot at the next
 * restart, unless the application writes 1 to image_ok in the slot's trailer. A product calls
 * boot_set_confirmed_multi() or, with Zephyr, boot_write_img_confirmed() for this.
 */
#include "fwr.h"

#define SLOT_0_END 0x21040000u
#define SLOT_1_END 0x21088000u
#define COPY_DONE(end) (*(volatile uint8_t *)((end) - 32u))
#define IMAGE_OK(end) (*(volatile uint8_t *)((end) - 24u))

static void confirm(uint32_t slot_end)
{
    if (COPY_DONE(slot_end) == 1) {
        IMAGE_OK(slot_end) = 1;
    }
}

/* The inputs are zero; a product compares the outputs of known inputs. */
static int model_works(void)
{
    if (fwr_app_model.init != NULL) {
        fwr_app_model.init();
    }
    return fwr_app_model.run() == FWR_OK;
}

int main(void)
{
    if (model_works()) {
        confirm(SLOT_0_END);
        confirm(SLOT_1_END);
    }
    fwr_serve(&fwr_app_model);
    return 0;
}
