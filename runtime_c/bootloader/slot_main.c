/* SPDX-License-Identifier: Apache-2.0 */
/* slot_main.c: main() of an application in a slot, which serves its own model or a newer one.
 *
 * The bootloader passes the address of a model image made for this application. That image uses RAM
 * after this application's data, where the built-in model's unused pools are.
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
