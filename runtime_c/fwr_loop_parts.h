/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_loop_parts.h: what the files of the loop share. Only they include it.
 *
 * fwr_loop.c        whose frame it is, who answers it, fault reports
 * fwr_loop_facts.c  what the host may know of model and board
 * fwr_loop_data.c   bytes in and out
 * fwr_loop_run.c    runs, their measure, pauses behind operators
 */
#ifndef FWR_LOOP_PARTS_H
#define FWR_LOOP_PARTS_H

#include <stdint.h>

#include "fwr.h"
#include "fwr_link.h"
#include "port/fwr_port.h"

/* ---- State --------------------------------------------------------------------------------- */

/* What the last run request came to. */
struct fwr_result {
    uint64_t total; /* ticks of all runs */
    uint64_t least; /* ticks of the shortest */
    uint32_t done;  /* runs */
    int32_t status; /* the model's own */
};

/* All that the link keeps: an answer grows where its request lies, over bytes already used. */
struct fwr_server {
    struct fwr_result result;
    uint64_t feed_ticks; /* of the rows fed since row 0: part of the run that follows */
    const struct fwr_model *model;
    uint32_t run_cost;       /* ticks that measuring an empty run shows */
    uint32_t params_written; /* bytes from the start of the block */
    uint32_t input_offset;   /* inputs are written from first to last: the place reached */
    uint16_t input_index;
    uint16_t session;  /* 0: none yet */
    uint16_t sequence; /* of the last request */
    uint16_t bytes_since_frame;  /* bytes since the last sound frame */
    uint8_t has_run;   /* that was a run, carried out: `result` is its answer */
    uint8_t output_valid;
    uint8_t interrupted;  /* a run ended early: another request lies in `link` */
    uint8_t baud_changed; /* the line runs at another rate than at start-up */
#if FWR_PROFILE
    uint16_t tap;      /* the operator to pause behind, or FWR_TAP_ALL */
    uint8_t tap_enabled;   /* the run under way pauses there */
    uint8_t pending_reply_cmd; /* the command to answer at the next pause: run, then step */
#endif
    struct fwr_link link; /* last: its bytes keep the others from being near */
};

extern struct fwr_server fwr_server;

/* ---- Requests ------------------------------------------------------------------------------
 * `data` is the request's payload in `link`. The answer's replaces it, so it is read before
 * anything is written. What comes back is the size of the answer's payload, or a negative status:
 * then the answer has none. FWR_REPLY says both.
 */
#define FWR_REPLY(status, size_bytes) \
    ((int32_t)(((uint32_t)(uint8_t)(status) << 16) | (size_bytes)))

int32_t fwr_server_do_hello(uint8_t *data);
int32_t fwr_server_do_text(uint8_t *data);
int32_t fwr_server_do_tensor(uint8_t *data);
int32_t fwr_server_do_stack(uint8_t *data);
int32_t fwr_server_do_write_input(uint8_t *data);
int32_t fwr_server_do_write_params(uint8_t *data);
int32_t fwr_server_do_read_output(uint8_t *data);
int32_t fwr_server_do_run(uint8_t *data);
int32_t fwr_server_do_step(uint8_t *data);
int32_t fwr_server_do_profile(uint8_t *data);

/* Bytes of the request's payload. */
static inline uint32_t fwr_server_request_size(void)
{
    return fwr_server.link.length - FWR_LINK_HEADER;
}

/* ---- Frames (fwr_loop.c) ------------------------------------------------------------------- */

enum fwr_frame_class {
    FWR_FRAME_RETRANSMIT,     /* the last request, repeated */
    FWR_FRAME_NEXT,     /* the session's next */
    FWR_FRAME_NEW_SESSION, /* the hello of another session */
    FWR_FRAME_WRONG_SESSION,   /* of another session, which has not said hello */
    FWR_FRAME_STALE       /* a copy of an older request, or our own answer, echoed by the line */
};

/* Takes one byte; whether it completes a sound frame. */
int fwr_server_receive_byte(uint8_t byte);

/* Whose the frame in `link` is. The host of a foreign one is told to say hello. */
enum fwr_frame_class fwr_server_classify_frame(void);

/* Sends what lies in `link` behind the header as an answer to the request under way. `reply` is
 * what a request comes to, see above. */
void fwr_server_reply(uint8_t kind, int32_t reply);

/* The report of a fault in place of the request, whose session and sequence it keeps. */
void fwr_server_send_fault(const struct fwr_fault *fault);

/* Answers the run in `link` before it is over. */
void fwr_server_send_busy(void);

/* ---- Between the parts --------------------------------------------------------------------- */

/* NULL where there is none. */
const struct fwr_tensor *fwr_server_find_tensor(uint32_t is_output, uint32_t index);

/* Bytes of stack used at most so far; 0 if the port does not know its stack. */
uint32_t fwr_server_stack_used(void);

/* From now on, runs wait for inputs that are written anew. */
void fwr_server_invalidate_inputs(void);

/* What an empty run costs, from now on taken away from what is measured. */
void fwr_server_calibrate(void);

/* The ticks that passed between two readings without those that measuring takes. */
static inline uint64_t fwr_server_net_ticks(uint64_t ticks)
{
    return ticks > fwr_server.run_cost ? ticks - fwr_server.run_cost : 0;
}

static inline int fwr_server_is_in_range(uint32_t offset, uint32_t size, uint32_t limit)
{
    return offset <= limit && size <= limit - offset;
}

#endif
