/* SPDX-License-Identifier: Apache-2.0 */
/* mcuboot_config.h: this MCUboot: two images, swapped with revert, ECDSA P-256, roll-back
 * protection, and serial recovery with image states. */
#ifndef MCUBOOT_CONFIG_H
#define MCUBOOT_CONFIG_H

#define MCUBOOT_SIGN_EC256
#define MCUBOOT_USE_TINYCRYPT
#define MCUBOOT_VALIDATE_PRIMARY_SLOT
#define MCUBOOT_HW_ROLLBACK_PROT       /* by security counter, in SECURITY_COUNTERS of port.h */
#define MCUBOOT_DOWNGRADE_PREVENTION 1 /* by version */
#define MCUBOOT_DOWNGRADE_PREVENTION_SECURITY_COUNTER 0

#define MCUBOOT_IMAGE_NUMBER 2 /* 0: the application, 1: the constants of its model */
#define MCUBOOT_SWAP_USING_MOVE 1
#define MCUBOOT_MAX_IMG_SECTORS 128
#define MCUBOOT_BOOT_MAX_ALIGN 8
#define MCUBOOT_USE_FLASH_AREA_GET_SECTORS

#define MCUBOOT_SERIAL
#define MCUBOOT_SERIAL_DIRECT_IMAGE_UPLOAD
#define MCUBOOT_SERIAL_IMG_GRP_HASH
#define MCUBOOT_SERIAL_IMG_GRP_IMAGE_STATE
#define MCUBOOT_SERIAL_IMG_GRP_SLOT_INFO
#define MCUBOOT_SERIAL_WAIT_FOR_DFU
#define MCUBOOT_SERIAL_MAX_RECEIVE_SIZE 1024
#define MCUBOOT_BOOT_MGMT_ECHO
#define MCUBOOT_BOOT_MGMT_MCUMGR_PARAMS
#define MCUBOOT_PERUSER_MGMT_GROUP_ENABLED 0

#define MCUBOOT_WATCHDOG_FEED() ((void)0)
#define MCUBOOT_CPU_IDLE() ((void)0)

#endif
