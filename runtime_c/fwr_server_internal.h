/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server_internal.h: declarations shared by the server's source files.
 *
 * A file calls those above it in this list, never one below.
 *
 * fwr_server_frames.c    state, receiving, classifying and sending frames
 * fwr_server_info.c      descriptions of model and board
 * fwr_server_fault.c     fault reports
 * fwr_server_watchdog.c  the report after the watchdog expired
 * fwr_server_data.c      inputs, parameters, outputs
 * fwr_server_run.c       runs, measurement, pauses after operators
 * fwr_server.c           dispatch of requests, main loop
 */
#ifndef FWR_SERVER_INTERNAL_H
#define FWR_SERVER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "fwr.h"
#include "fwr_link.h"
#include "port/fwr_port.h"

/* ---- State --------------------------------------------------------------------------------- */

/* Result of the last run request. */
struct fwr_result {
    uint64_t total; /* ticks of all runs */
    uint64_t least; /* ticks of the shortest */
    uint32_t done;  /* completed runs */
    int32_t status; /* returned by the model */
};

/* The server's state. An answer overwrites its request in `link`. */
struct fwr_server {
    struct fwr_result result;
    uint64_t feed_ticks; /* of the rows fed since row 0; added to the next run */
    const struct fwr_model *model;
    uint32_t run_cost;       /* measured ticks of an empty run */
    uint32_t params_written; /* contiguous bytes from the start of the block */
    uint32_t input_offset;   /* write position; inputs are written in order */
    uint16_t input_index;
    uint16_t session;           /* 0: none */
    uint16_t sequence;          /* of the last request */
    uint16_t bytes_since_frame; /* bytes since the last valid frame */
    bool has_run;               /* the last request was a completed run; `result` is its answer */
    bool output_valid;
    bool interrupted;  /* a run was aborted; `link` holds another request */
    bool baud_changed; /* the baud rate differs from that at start-up */
#if FWR_PROFILE
    uint16_t tap;              /* operator to pause after, or FWR_TAP_ALL */
    bool tap_enabled;          /* the current run pauses there */
    uint8_t pending_reply_cmd; /* command to answer at the next pause: run, then step */
#endif
    struct fwr_link link; /* last, so that the offsets of the other members stay small */
};

extern struct fwr_server fwr_server;

/* ---- Requests ------------------------------------------------------------------------------
 * `data` is the request's payload in `link`. The answer's payload replaces it, so a handler reads
 * before it writes. It returns the size of the answer's payload, or a negative status.
 */
int32_t fwr_server_do_hello(uint8_t *data);
int32_t fwr_server_do_text(uint8_t *data);
int32_t fwr_server_do_tensor(uint8_t *data);
int32_t fwr_server_do_stack(uint8_t *data);
int32_t fwr_server_do_write_input(const uint8_t *data);
int32_t fwr_server_do_write_params(const uint8_t *data);
int32_t fwr_server_do_read_output(uint8_t *data);
int32_t fwr_server_do_run(uint8_t *data);
int32_t fwr_server_do_step(uint8_t *data);
int32_t fwr_server_do_profile(uint8_t *data);
int32_t fwr_server_do_identity(uint8_t *data);

/* Returns the payload size of the request. */
static inline uint32_t fwr_server_request_size(void)
{
    FWR_ASSERT(fwr_server.link.length >= FWR_LINK_HEADER);
    return fwr_server.link.length - FWR_LINK_HEADER;
}

/* ---- Frames (fwr_server_frames.c) ------------------------------------------------------------ */

enum fwr_frame_class {
    FWR_FRAME_RETRANSMIT,    /* the last request, repeated */
    FWR_FRAME_NEXT,          /* the next request of the session */
    FWR_FRAME_NEW_SESSION,   /* hello of another session */
    FWR_FRAME_WRONG_SESSION, /* request of another session without a hello */
    FWR_FRAME_STALE          /* an older request, or an echo of an answer */
};

/* Processes one byte. Returns whether it completes a valid frame. */
bool fwr_server_receive_byte(uint8_t byte);

/* Classifies the frame in `link`. Answers FWR_FRAME_WRONG_SESSION with an error. */
enum fwr_frame_class fwr_server_classify_frame(void);

/* Uses the session and sequence of the frame in `link` for the following answers. */
void fwr_server_adopt_sequence(void);

/* Sends a frame without session and payload. */
void fwr_server_send_unasked(uint8_t kind);

/* Sends `size` bytes of payload in `link` as an answer to the current request. */
void fwr_server_reply(uint8_t kind, int32_t status, uint32_t size);

/* Sends a fault report with the session and sequence of the current request. */
void fwr_server_send_fault(const struct fwr_fault *fault);

/* Answers the run request in `link` with FWR_BUSY. */
void fwr_server_send_busy(void);

/* ---- Helpers --------------------------------------------------------------------------------- */

/* Returns NULL for an invalid index. */
const struct fwr_tensor *fwr_server_find_tensor(uint32_t is_output, uint32_t index);

/* Returns the deepest stack use in bytes, or 0 if unknown. */
uint32_t fwr_server_stack_used(void);

/* Requires all inputs to be written again before the next valid output. */
void fwr_server_invalidate_inputs(void);

/* Measures the cost of an empty run, which is subtracted from later measurements. */
void fwr_server_calibrate(void);

/* Returns elapsed ticks without the cost of measuring. */
static inline uint64_t fwr_server_net_ticks(uint64_t ticks)
{
    return ticks > fwr_server.run_cost ? ticks - fwr_server.run_cost : 0;
}

static inline bool fwr_server_is_in_range(uint32_t offset, uint32_t size, uint32_t limit)
{
    return offset <= limit && size <= limit - offset;
}

#endif
