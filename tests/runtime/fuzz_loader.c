/* fuzz_loader.c: fuzzes the bootloader with libFuzzer, ASan and UBSan.
 *
 * The input is a list of requests with correct checksums. The flash is separate memory, so that
 * ASan detects any overflow. Only the free slot may be written, and a startable application must
 * always remain, since one was confirmed at the beginning.
 *
 *     clang -fsanitize=fuzzer,address,undefined -Iruntime_c -Iruntime_c/bootloader fuzz_loader.c
 *
 * with the test's fwr_board.h, which redirects flash addresses here.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_frames.h"
#include "fwr_bootloader.c"
#include "fwr_link.c"
#include "fwr_slots.c"

#define FLASH_BYTES (FWR_SLOT_COUNT * FWR_SLOT_BYTES)
#define IMAGE_BYTES 64u
#define PAYLOAD_MAX 250u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

uint8_t *fuzz_flash;
struct fwr_handoff fuzz_handoff;

static struct {
    const uint8_t *data;
    size_t size;
    struct fwr_link reader; /* receiver of the bootloader's output */
    jmp_buf left;
} fuzz;

/* ---- A port -------------------------------------------------------------------------------- */

void fwr_console_init(void) {}

int32_t fwr_port_byte_in(void)
{
    return -1;
}

void fwr_port_byte_out(uint8_t byte)
{
    if (fwr_link_feed(&fuzz.reader, byte) == FWR_LINK_DAMAGED) {
        abort();
    }
}

FWR_NORETURN void fwr_bootloader_leave(uint32_t entry)
{
    (void)entry;
    longjmp(fuzz.left, 1);
}

/* Marks may be set in any slot; images are written only to the free one. */
static void require_free(uint32_t address)
{
    uint32_t begin = fwr_slots_address(loader.slots.free);

    if (address < begin || address >= begin + FWR_SLOT_BYTES) {
        abort();
    }
}

int32_t fwr_flash_erase(uint32_t address)
{
    require_free(address);
    if (address % FWR_SLOT_PAGE != 0) {
        abort();
    }
    memset(FWR_FLASH_PLACE(address), 0xff, FWR_SLOT_PAGE);
    return FWR_OK;
}

int32_t fwr_flash_write(uint32_t address, const uint8_t *data, uint32_t size)
{
    uint8_t *place = FWR_FLASH_PLACE(address);

    if (size != 4u) {
        require_free(address);
    }
    for (uint32_t i = 0; i < size; i++) {
        if ((place[i] & data[i]) != data[i]) {
            return FWR_E_IO;
        }
        place[i] = data[i];
    }
    return FWR_OK;
}

/* ---- Steps --------------------------------------------------------------------------------- */

static uint8_t next(void)
{
    return fuzz.size == 0 ? 0 : (fuzz.size--, *fuzz.data++);
}

static void write_image(uint8_t *at, uint8_t seed, int is_model)
{
    struct fwr_image_words image = {FWR_IMAGE_MAGIC, FWR_ABI, 1, 0, 0x100, 0, 0};

    image.start = is_model ? 1 : 0;
    memset(at, seed, IMAGE_BYTES);
    memcpy(at, &image, sizeof image);
}

/* Fills in a valid image and its checksum, which the fuzzer could not guess. */
static uint32_t fill(uint8_t *payload, uint8_t command, uint32_t size)
{
    uint8_t how = next();

    if ((how & 1u) != 0) {
        payload[0] = loader.slots.free;
    }
    if (command == FWR_BOOTLOADER_WRITE && (how & 2u) != 0) {
        memset(&payload[1], 0, 4);
        write_image(&payload[5], how, (how & 4u) != 0);
        return 5u + IMAGE_BYTES;
    }
    if (command == FWR_BOOTLOADER_COMMIT && (how & 2u) != 0 && payload[0] < FWR_SLOT_COUNT) {
        const uint8_t *image = (const uint8_t *)fwr_slots_image(payload[0]);

        fwr_link_put(&payload[1], IMAGE_BYTES, 4);
        fwr_link_put(&payload[5], fwr_link_crc32(0, image, IMAGE_BYTES), 4);
        return PLACE + FWR_RECORD_ID;
    }
    return size;
}

static void request(void)
{
    uint8_t frame[FWR_LINK_HEADER + PAYLOAD_MAX + FWR_LINK_CRC] = {1, 0, 1, 0};
    uint8_t *payload = &frame[FWR_LINK_HEADER];
    uint32_t size = next() % PAYLOAD_MAX;

    frame[4] = (uint8_t)(30u + next() % 11u);
    for (uint32_t i = 0; i < size; i++) {
        payload[i] = next();
    }
    size = fill(payload, frame[4], size);
    fwr_link_close(frame, FWR_LINK_HEADER + size);
    hand_over(take, frame, FWR_LINK_HEADER + size + FWR_LINK_CRC);
}

/* Runs the bootloader until its next start. */
static void serve(void)
{
    fwr_slots_scan(&loader.slots);
    if (loader.slots.application == FWR_SLOT_NONE) {
        abort();
    }
    while (fuzz.size > 0) {
        request();
        if (loader.leaves) {
            loader.leaves = 0;
            start();
        }
    }
}

static void begin(void)
{
    static const uint8_t id[FWR_RECORD_ID] = {0};

    memset(&loader, 0, sizeof loader);
    memset(&fuzz.reader, 0, sizeof fuzz.reader);
    write_image(fuzz_flash, 7, 0);
    fwr_slots_scan(&loader.slots);
    if (fwr_slots_commit(&loader.slots, 0, IMAGE_BYTES, fwr_link_crc32(0, fuzz_flash, IMAGE_BYTES),
                         id) != 0 ||
        fwr_slots_confirm(&loader.slots, 0) != 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz.data = data;
    fuzz.size = size;
    fuzz_flash = malloc(FLASH_BYTES);
    memset(fuzz_flash, 0xff, FLASH_BYTES);
    begin();
    (void)setjmp(fuzz.left);
    serve();
    free(fuzz_flash);
    return 0;
}
