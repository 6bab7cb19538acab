/* SPDX-License-Identifier: Apache-2.0 */
/* flash_nrf.c: the flash of the nRF51 and nRF52 series, through its controller (NVMC; reference
 * manual of the nRF51, 3.0, chapter 6, and product specification of the nRF52840, chapter 4.3).
 *
 * The core stalls while the controller works on the flash that it executes from.
 */
#include "fwr.h"
#include "fwr_flash.h"
#include "fwr_link.h"
#include "fwr_wait.h"

#define NVMC_READY FWR_REG(0x4001E400u)
#define NVMC_CONFIG FWR_REG(0x4001E504u)
#define NVMC_ERASEPAGE FWR_REG(0x4001E508u)

#define CONFIG_READ 0u
#define CONFIG_WRITE 1u
#define CONFIG_ERASE 2u

#if !defined(FWR_FLASH_WORD) /* tests substitute their own memory */
#define FWR_FLASH_WORD(address) FWR_REG(address)
#endif

static int32_t finish(int is_ready)
{
    int waited = fwr_becomes(&NVMC_READY, 1u, 1u);

    NVMC_CONFIG = CONFIG_READ;
    return is_ready && waited ? FWR_OK : FWR_E_IO;
}

int32_t fwr_flash_erase(uint32_t address)
{
    NVMC_CONFIG = CONFIG_ERASE;
    NVMC_ERASEPAGE = address;
    return finish(1);
}

int32_t fwr_flash_write(uint32_t address, const uint8_t *data, uint32_t size)
{
    int is_ready = 1;

    NVMC_CONFIG = CONFIG_WRITE;
    for (uint32_t i = 0; i < size && is_ready; i += 4u) {
        FWR_FLASH_WORD(address + i) = fwr_link_get(&data[i], 4);
        is_ready = fwr_becomes(&NVMC_READY, 1u, 1u);
    }
    return finish(is_ready);
}
