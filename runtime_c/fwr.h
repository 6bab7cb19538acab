/* SPDX-License-Identifier: Apache-2.0 */
/* fwr.h: the whole public interface of the Firmwright runtime.
 *
 * The generated glue fills one `struct fwr_model`; fwr_main() serves it over the serial link.
 * The generated model itself (NAME.c, NAME.h) includes nothing from here. A port implements
 * port/fwr_port.h. The bytes on the wire are written down in ABI.md.
 */
#ifndef FWR_H
#define FWR_H

#include <stddef.h>
#include <stdint.h>

#include "fwr_config.h"

/* ---- Version ------------------------------------------------------------------------------
 * Counts every change of the structures below. Generated glue has
 *     #if FWR_ABI != 2
 *     #error "made for another runtime; run firmwright compile again"
 *     #endif
 */
#define FWR_ABI 2

/* ---- Status codes --------------------------------------------------------------------------
 * Zero is success, negative is failure. The link carries them as one signed byte.
 */
enum fwr_status {
    FWR_OK = 0,
    FWR_BUSY = 1,           /* accepted: the answer follows when the work is done */
    FWR_PAUSED = 2,         /* the run stands behind an operator, whose output can be read */
    FWR_E_COMMAND = -1,     /* no such command in this firmware */
    FWR_E_SIZE = -2,        /* the payload is too short or too long for the command */
    FWR_E_RANGE = -3,       /* index, offset or size outside the tensor, block or list */
    FWR_E_SESSION = -4,     /* the frame belongs to another session: say hello first */
    FWR_E_NO_OUTPUT = -5,   /* no run on the input as written: write the input, run, then read */
    FWR_E_RUN = -6,         /* the model's run returned an error of its own */
    FWR_E_UNSUPPORTED = -7, /* this image lacks it: no probes, no parameter block, no stack mark */
    FWR_E_FAULT = -8,       /* the processor faulted; only reset is answered */
    FWR_E_IO = -9,          /* external memory could not be read */
    FWR_E_PARAMS = -10      /* the parameter block is not written completely: write it, then run */
};

/* ---- Tensors ------------------------------------------------------------------------------- */

enum fwr_dtype {
    FWR_INT8 = 1,
    FWR_UINT8 = 2,
    FWR_INT16 = 3,
    FWR_UINT16 = 4,
    FWR_INT32 = 5,
    FWR_UINT32 = 6,
    FWR_INT64 = 7,
    FWR_FLOAT32 = 8,
    FWR_BOOL = 9,
    FWR_UINT64 = 10
};

struct fwr_tensor {
    const char *name;
    void *data; /* where the model reads or writes it */
    uint32_t size_bytes;
    uint8_t dtype; /* enum fwr_dtype */
};

/* ---- The model as the glue presents it ----------------------------------------------------- */

/* What the probes of a profile image gather for one operator, over the runs of one request. */
struct fwr_operator {
    uint64_t count; /* counter ticks, the counter's own cost taken away */
    uint32_t calls;
    uint32_t checksum; /* CRC-32 of the first output's bytes of all calls, if asked for */
};

#if FWR_GUARDS
/* A pool with FWR_GUARD_BYTES in front of it and behind it that are not the model's. */
struct fwr_guarded_pool {
    const char *name;
    uint8_t *pool;
    uint32_t size_bytes; /* of the pool */
};
#endif

/* A run overwrites the inputs, or an input write overwrites the outputs. */
#define FWR_MODEL_CONSUMES_INPUT 1u

struct fwr_model {
    const char *name;
    uint8_t id[16]; /* content hash: the host refuses any other */
    const struct fwr_tensor *inputs;
    const struct fwr_tensor *outputs;
    uint16_t input_count;
    uint16_t output_count;
    uint16_t operator_count;
    uint16_t flags;       /* FWR_MODEL_* */
    void (*init)(void);   /* called once before anything else; may be NULL */
    int32_t (*run)(void); /* one inference; 0 or the model's own error */
    void *params;         /* --no-link-params: the block to fill, else NULL */
    uint32_t params_size_bytes;
    uint32_t row_size_bytes;        /* --stream-input-rows: of `row` */
    void *row;                      /* the one row of the input that is in memory, else NULL */
    int32_t (*feed)(uint32_t row);  /* takes in row number `row` from there, in order from 0 */
    struct fwr_operator *operators; /* operator_count records if FWR_PROFILE, else NULL */
#if FWR_GUARDS
    const struct fwr_guarded_pool *fences;
    uint32_t guard_count;
#endif
};

/* ---- The firmware main loop ---------------------------------------------------------------- */

/* The image's only model, defined by the glue. */
extern const struct fwr_model fwr_app_model;

/* Initialises the port, then answers requests for ever. main() in fwr_main.c calls it. */
void fwr_serve(const struct fwr_model *model);

/* The same in pieces, for a main loop of one's own: start once, then hand over each byte that
 * arrives. Whatever a byte completes is carried out and answered before the call returns. */
void fwr_server_start(const struct fwr_model *model);
void fwr_server_feed(uint8_t byte);

#endif
