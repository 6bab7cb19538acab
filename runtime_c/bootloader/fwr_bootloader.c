/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_bootloader.c: listens for a while, then starts the newest image; accepts new images.
 *
 * Commands are independent and idempotent, so there are no sessions; a host repeats unanswered
 * requests.
 */
#include "fwr_bootloader.h"

#include "fwr.h"
#include "fwr_drivers.h"
#include "fwr_handoff.h"
#include "fwr_link.h"
#include "fwr_server.h"
#include "fwr_slots.h"

/* One iteration of the loop takes about 16 clock periods. */
#define TURNS_PER_SECOND (FWR_CLOCK_HZ / 16u)
#define KNOCK_TURNS (TURNS_PER_SECOND / 10u) /* after power-on */
#define LISTEN_TURNS TURNS_PER_SECOND        /* after a restart requested by the host */
#define IDLE_TURNS (TURNS_PER_SECOND * 30u)  /* after the last request */

#define HELLO_ANSWER 24u
#define SLOT_ANSWER 25u
#define PLACE 9u /* slot u8, offset u32, size u32 */

static struct {
    struct fwr_link link;
    struct fwr_slots slots;
    uint32_t turns; /* iterations until the application starts */
    uint8_t leaves; /* the host requested a start */
} loader;

/* A request's payload; the answer replaces it. */
struct request {
    uint8_t *data;
    uint32_t size;
    uint32_t reply_size;
};

/* ---- Commands ------------------------------------------------------------------------------ */

static int32_t do_hello(struct request *request)
{
    static const char board[] = FWR_BOARD_NAME;
    uint8_t *reply = request->data;

    fwr_link_put(&reply[0], FWR_BOOTLOADER_VERSION, 2);
    fwr_link_put(&reply[2], FWR_LINK_PAYLOAD_MAX, 2);
    reply[4] = FWR_SLOT_COUNT;
    reply[5] = loader.slots.free;
    reply[6] = loader.slots.application;
    reply[7] = loader.slots.model;
    fwr_link_put(&reply[8], FWR_SLOT_BASE, 4);
    fwr_link_put(&reply[12], FWR_SLOT_BYTES, 4);
    fwr_link_put(&reply[16], FWR_SLOT_PAGE, 4);
    fwr_link_put(&reply[20], FWR_HANDOFF, 4);
    for (uint32_t i = 0; i < sizeof board - 1u; i++) {
        reply[HELLO_ANSWER + i] = (uint8_t)board[i];
    }
    request->reply_size = HELLO_ANSWER + sizeof board - 1u;
    return FWR_OK;
}

static int32_t do_slot(struct request *request, uint32_t slot)
{
    const struct fwr_record *record = fwr_slots_record(slot);
    uint8_t *reply = request->data;

    reply[0] = loader.slots.state[slot];
    fwr_link_put(&reply[1], record->sequence, 4);
    fwr_link_put(&reply[5], record->size, 4);
    fwr_link_put(&reply[9], record->crc, 4);
    fwr_link_put(&reply[13], record->base, 4);
    for (uint32_t i = 0; i < FWR_RECORD_ID; i++) {
        reply[17u + i] = record->id[i];
    }
    request->reply_size = SLOT_ANSWER;
    return FWR_OK;
}

/* Returns bytes of a slot, including its record, or their CRC-32. */
static int32_t do_look(struct request *request, uint32_t slot, int reads)
{
    uint32_t offset = fwr_link_get(&request->data[1], 4);
    uint32_t size = fwr_link_get(&request->data[5], 4);
    const uint8_t *flash;

    if (request->size != PLACE) {
        return FWR_E_SIZE;
    }
    if (offset > FWR_SLOT_BYTES || size > FWR_SLOT_BYTES - offset ||
        (reads && size > FWR_LINK_PAYLOAD_MAX)) {
        return FWR_E_RANGE;
    }
    flash = (const uint8_t *)fwr_slots_image(slot) + offset;
    if (reads) {
        for (uint32_t i = 0; i < size; i++) {
            request->data[i] = flash[i];
        }
        request->reply_size = size;
    } else {
        fwr_link_put(request->data, fwr_link_crc32(0, flash, size), 4);
        request->reply_size = 4;
    }
    return FWR_OK;
}

static int32_t do_write(struct request *request, uint32_t slot)
{
    if (request->size < 5u) {
        return FWR_E_SIZE;
    }
    if (slot != loader.slots.free) {
        return FWR_E_RANGE;
    }
    return fwr_slots_write(&loader.slots, fwr_link_get(&request->data[1], 4), &request->data[5],
                           request->size - 5u);
}

static int32_t do_commit(struct request *request, uint32_t slot)
{
    if (request->size != PLACE + FWR_RECORD_ID) {
        return FWR_E_SIZE;
    }
    return fwr_slots_commit(&loader.slots, slot, fwr_link_get(&request->data[1], 4),
                            fwr_link_get(&request->data[5], 4), &request->data[PLACE]);
}

static int32_t dispatch(uint8_t command, struct request *request)
{
    uint32_t slot = request->data[0];

    if (command < FWR_BOOTLOADER_HELLO) {
        return FWR_E_COMMAND;
    }
    if (command == FWR_BOOTLOADER_HELLO) {
        return do_hello(request);
    }
    if (command == FWR_BOOTLOADER_BOOT) {
        loader.leaves = loader.slots.application != FWR_SLOT_NONE;
        return loader.leaves ? FWR_OK : FWR_E_UNSUPPORTED;
    }
    if (request->size == 0) {
        return FWR_E_SIZE;
    }
    if (slot >= FWR_SLOT_COUNT) {
        return FWR_E_RANGE;
    }
    switch (command) {
    case FWR_BOOTLOADER_SLOT:
        return do_slot(request, slot);
    case FWR_BOOTLOADER_CHECK:
        return do_look(request, slot, 0);
    case FWR_BOOTLOADER_READ:
        return do_look(request, slot, 1);
    case FWR_BOOTLOADER_WRITE:
        return do_write(request, slot);
    case FWR_BOOTLOADER_COMMIT:
        return do_commit(request, slot);
    case FWR_BOOTLOADER_CONFIRM:
        return fwr_slots_confirm(&loader.slots, slot);
    default:
        return FWR_E_COMMAND;
    }
}

/* ---- The link -------------------------------------------------------------------------------- */

/* Returns whether to ignore a request because it is for the application. A hello to the application
 * starts it. */
static int is_for_the_application(uint8_t command)
{
    int is_there = loader.slots.application != FWR_SLOT_NONE;

    if (command == FWR_HELLO && is_there) {
        loader.leaves = 1;
    }
    return command < FWR_BOOTLOADER_HELLO && is_there;
}

static void answer(void)
{
    uint8_t *frame = loader.link.rx;
    struct request request = {&frame[FWR_LINK_HEADER], loader.link.length - FWR_LINK_HEADER, 0};

    if ((frame[4] & FWR_KIND_ANSWER) != 0 || is_for_the_application(frame[4])) {
        return; /* also an echo */
    }
    loader.link.done = 1; /* the answer overwrites any partial frame */
    frame[5] = (uint8_t)dispatch(frame[4], &request);
    frame[4] |= FWR_KIND_ANSWER;
    fwr_link_close(frame, FWR_LINK_HEADER + request.reply_size);
    fwr_link_send(frame, FWR_LINK_HEADER + request.reply_size);
    loader.turns = IDLE_TURNS;
}

static void say(uint8_t kind)
{
    uint8_t frame[FWR_LINK_HEADER + FWR_LINK_CRC] = {0, 0, 0, 0, kind, 0};

    fwr_link_close(frame, FWR_LINK_HEADER);
    fwr_link_send(frame, FWR_LINK_HEADER);
}

static void take(uint8_t byte)
{
    switch (fwr_link_feed(&loader.link, byte)) {
    case FWR_LINK_FRAME:
        answer();
        break;
    case FWR_LINK_DAMAGED:
        say(FWR_KIND_DAMAGED);
        break;
    default:
        break;
    }
}

/* ---- Starting ------------------------------------------------------------------------------ */

static void start(void)
{
    volatile struct fwr_handoff *handoff = FWR_HANDOFF_AT;
    uint32_t entry;

    if (loader.slots.application == FWR_SLOT_NONE || fwr_slots_mark_started(&loader.slots) != 0) {
        return;
    }
    entry = fwr_slots_image(loader.slots.application)->entry;
    handoff->vectors = entry;
    handoff->model = 0;
    if (loader.slots.model != FWR_SLOT_NONE) {
        handoff->model = fwr_slots_image(loader.slots.model)->start;
    }
    fwr_bootloader_leave(entry);
}

void fwr_bootloader(void)
{
    int asked = FWR_HANDOFF_AT->request == FWR_HANDOFF_LISTEN;

    FWR_HANDOFF_AT->request = 0;
    FWR_HANDOFF_AT->vectors = 0;
    fwr_slots_scan(&loader.slots);
    fwr_console_init();
#if defined(FWR_BOOTLOADER_COUNTS)
    fwr_counter_init(); /* QEMU checks for bytes that arrived early when a timer is set */
#endif
    loader.turns = asked ? LISTEN_TURNS : KNOCK_TURNS;
    say(FWR_KIND_STARTED);
    for (;;) {
        int32_t byte = fwr_port_byte_in();

        if (byte >= 0) {
            take((uint8_t)byte);
        }
        if (loader.leaves || loader.turns == 0) {
            loader.leaves = 0;
            loader.turns = IDLE_TURNS;
            start();
        }
        loader.turns--;
    }
}
