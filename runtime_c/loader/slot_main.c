/* SPDX-License-Identifier: Apache-2.0 */
/* slot_main.c: main() of an application in a slot: serves its own model, or a later one.
 *
 * The loader says whether there is a model image that was made for this application. Such an image
 * uses RAM from the end of this application's data on; this one's own pools lie there, and rest.
 */
#include "fwr_drivers.h"
#include "fwr_handoff.h"
#include "fwr_image.h"

__attribute__((section(".image"), used)) const struct fwr_image fwr_image = {
    FWR_IMAGE_MAGIC, FWR_ABI, fwr_ld_entry, 0, fwr_ld_ram, fwr_ld_stack_low, fwr_ld_stack_high,
};

static const struct fwr_model *find_model(void)
{
    uint32_t start = FWR_HANDOFF_AT->model;

    if (start == 0) {
        return &fwr_app_model;
    }
    return ((const struct fwr_model *(*)(void))start)();
}

int main(void)
{
    fwr_serve(find_model());
    return 0;
}
