/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_mlperf.h: firmware with MLPerf Tiny's device protocol instead of the link.
 *
 * The generated glue defines the model (`fwr_app_model`, fwr.h) and the task: how a sample becomes
 * the model's input, and how outputs are reported. Commands end with '%', lines with CR LF; every
 * answer ends with the line "m-ready".
 *
 * A sample stays in the benchmark's buffer and is copied into the model's input within each timed
 * inference, so a model that overwrites its input can run repeatedly.
 */
#ifndef FWR_MLPERF_H
#define FWR_MLPERF_H

#include <stdint.h>

/* Conversion of sample bytes to the model's int8 input. */
enum fwr_mlperf_sample {
    FWR_MLPERF_INT8 = 1,   /* unchanged */
    FWR_MLPERF_UINT8 = 2,  /* minus 128 */
    FWR_MLPERF_FLOAT32 = 3 /* little endian; quantized with the input's scale */
};

/* The reported results. */
enum fwr_mlperf_results {
    FWR_MLPERF_OUTPUTS = 1, /* every output value with three decimals */
    FWR_MLPERF_ERROR = 2    /* the mean squared difference between output and float input */
};

struct fwr_mlperf_quantization {
    float scale;
    int32_t zero_point;
};

struct fwr_mlperf_task {
    const char *vendor;        /* answer to `name` */
    const char *model;         /* answer to `profile`, such as "kws01" */
    uint8_t *sample;           /* sample buffer, aligned for floats */
    int8_t *quantised;         /* input of float samples; else NULL */
    uint32_t sample_bytes;     /* size of one sample on the line */
    uint32_t units_per_second; /* the port's counter ticks per second after scaling */
    uint8_t input;             /* enum fwr_mlperf_sample */
    uint8_t results;           /* enum fwr_mlperf_results */
    uint8_t streams;           /* the streaming wake word: records detections */
    uint8_t energy;            /* energy mode: pulses on a pin instead of printed times */
    uint8_t flushes; /* the port buffers lines: a zero byte after "m-ready" flushes them */
    struct fwr_mlperf_quantization in;
    struct fwr_mlperf_quantization out;
};

/* The benchmark task, defined by the glue. */
extern const struct fwr_mlperf_task fwr_mlperf_task;

#endif
