/* SPDX-License-Identifier: Apache-2.0 */
/* fwr.h: the complete public interface of the Firmwright runtime.
 *
 * The generated glue defines one `struct fwr_model`; fwr_serve() serves it over the serial link.
 * The generated model itself (NAME.c, NAME.h) does not include this file. A port implements
 * port/fwr_port.h. ABI.md specifies the link protocol.
 */
#ifndef FWR_H
#define FWR_H

#include <stddef.h>
#include <stdint.h>

#include "fwr_config.h"

/* ---- Version ------------------------------------------------------------------------------
 * Incremented with every change of the structures below. Generated glue contains
 *     #if FWR_ABI != 2
 *     #error "made for another runtime; run firmwright compile again"
 *     #endif
 */
#define FWR_ABI 2

/* ---- Status codes --------------------------------------------------------------------------
 * Zero is success, negative values are failures. The link carries a status as one signed byte.
 */
enum fwr_status {
    FWR_OK = 0,
    FWR_BUSY = 1,           /* accepted: the answer follows when the work is done */
    FWR_PAUSED = 2,         /* the run is paused after an operator; its output can be read */
    FWR_E_COMMAND = -1,     /* unknown command */
    FWR_E_SIZE = -2,        /* the payload is too short or too long for the command */
    FWR_E_RANGE = -3,       /* index, offset or size out of range */
    FWR_E_SESSION = -4,     /* unknown session: send hello first */
    FWR_E_NO_OUTPUT = -5,   /* no valid output: write the inputs, run, then read */
    FWR_E_RUN = -6,         /* the model's run returned an error */
    FWR_E_UNSUPPORTED = -7, /* not in this image: no probes, parameter block or stack information */
    FWR_E_FAULT = -8,       /* the processor faulted; only reset is accepted */
    FWR_E_IO = -9,          /* external memory could not be read */
    FWR_E_PARAMS = -10      /* the parameter block is incomplete: write it, then run */
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
    FWR_UINT64 = 10,
    FWR_FLOAT64 = 11,
    /* Stored numbers: a byte each, 16-bit floats in two. */
    FWR_FLOAT16 = 12,
    FWR_BFLOAT16 = 13,
    FWR_FLOAT8_E4M3FN = 14,
    FWR_FLOAT8_E4M3FNUZ = 15,
    FWR_FLOAT8_E5M2 = 16,
    FWR_FLOAT8_E5M2FNUZ = 17,
    FWR_FLOAT8_E8M0FNU = 18,
    FWR_FLOAT4_E2M1FN = 19,
    FWR_INT4 = 20,
    FWR_UINT4 = 21,
    FWR_INT2 = 22,
    FWR_UINT2 = 23
};

struct fwr_tensor {
    const char *name;
    void *data; /* the model's buffer */
    uint32_t size_bytes;
    uint8_t dtype; /* enum fwr_dtype */
#if FWR_PRIVATE_IO
    uint8_t is_private; /* only fwr_port_pool_write and fwr_port_pool_read access the data */
#endif
};

/* ---- The model, as described by the glue ----------------------------------------------------- */

/* Measurements of one operator over the runs of one request, collected by probes. */
struct fwr_operator {
    uint64_t count; /* counter ticks without measuring overhead */
    uint32_t calls;
    uint32_t checksum; /* CRC-32 over the first output of all calls, if requested */
};

#if FWR_GUARDS
/* A pool with FWR_GUARD_BYTES before and after it that the model must not write. */
struct fwr_guarded_pool {
    const char *name;
    uint8_t *pool;
    uint32_t size_bytes; /* of the pool */
};
#endif

/* A run overwrites inputs, or writing an input overwrites outputs. */
#define FWR_MODEL_CONSUMES_INPUT 1u

struct fwr_model {
    const char *name;
    uint8_t id[16]; /* content hash; the host rejects other models */
    const struct fwr_tensor *inputs;
    const struct fwr_tensor *outputs;
    uint16_t input_count;
    uint16_t output_count;
    uint16_t operator_count;
    uint16_t flags;       /* FWR_MODEL_* */
    void (*init)(void);   /* called once, before all others; may be NULL */
    int32_t (*run)(void); /* one inference; returns 0 or the model's error */
    void *params;         /* --no-link-params: the block to fill; else NULL */
    uint32_t params_size_bytes;
    uint32_t row_size_bytes;        /* --stream-input-rows: size of `row` */
    void *row;                      /* buffer of the current input row; else NULL */
    int32_t (*feed)(uint32_t row);  /* consumes row number `row`; rows arrive in order from 0 */
    struct fwr_operator *operators; /* operator_count records if FWR_PROFILE, else NULL */
#if FWR_GUARDS
    const struct fwr_guarded_pool *guards;
    uint32_t guard_count;
#endif
};

/* ---- The server ------------------------------------------------------------------------------ */

/* The only model of the image, defined by the glue. */
extern const struct fwr_model fwr_app_model;

/* Initializes the port and serves requests forever. Called by main() in fwr_main.c. */
void fwr_serve(const struct fwr_model *model);

/* The same for an application with its own main loop: call fwr_server_start() once, then
 * fwr_server_feed() with each received byte. A completed request is executed and answered before
 * fwr_server_feed() returns. Not reentrant; do not call it from an interrupt handler. */
void fwr_server_start(const struct fwr_model *model);
void fwr_server_feed(uint8_t byte);

#endif
