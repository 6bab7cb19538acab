/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_mlperf.h: a firmware that speaks MLPerf Tiny's device protocol instead of our link.
 *
 * The generated glue has the model (`fwr_app_model`, fwr.h) and the task: what a sample is, how it
 * becomes the model's input, and what of the output is told. Commands end with '%'; lines end with
 * CR LF; every command is answered up to the line "m-ready".
 *
 * A sample stays in the harness's buffer and is copied into the model's input within each
 * inference, so that is timed, and a model that overwrites its input runs as often as asked.
 */
#ifndef FWR_MLPERF_H
#define FWR_MLPERF_H

#include <stdint.h>

/* How the bytes of a sample become the model's int8 input. */
enum fwr_mlperf_sample {
    FWR_MLPERF_INT8 = 1,   /* as they are */
    FWR_MLPERF_UINT8 = 2,  /* less 128 */
    FWR_MLPERF_FLOAT32 = 3 /* little endian, quantised with the input's scale */
};

/* What the results are. */
enum fwr_mlperf_results {
    FWR_MLPERF_OUTPUTS = 1, /* every output value, with three digits */
    FWR_MLPERF_ERROR = 2    /* the mean squared difference of output and float input */
};

struct fwr_mlperf_quantization {
    float scale;
    int32_t zero_point;
};

struct fwr_mlperf_task {
    const char *vendor;        /* answer to `name` */
    const char *model;         /* "kws01": answer to `profile` */
    uint8_t *sample;           /* the harness's buffer, aligned for floats */
    int8_t *quantised;         /* of float samples: the input; else NULL */
    uint32_t sample_bytes;     /* of one sample on the line */
    uint32_t units_per_second; /* of the port's counter, whose ticks are scaled to units */
    uint8_t input;             /* enum fwr_mlperf_sample */
    uint8_t results;           /* enum fwr_mlperf_results */
    uint8_t energy;            /* a mark on a pin where performance mode prints the time */
    uint8_t flushes;           /* the port buffers lines: a zero byte behind "m-ready" sends them */
    struct fwr_mlperf_quantization in;
    struct fwr_mlperf_quantization out;
};

/* The image's task, defined by the glue. */
extern const struct fwr_mlperf_task fwr_mlperf_task;

#endif
