/* SPDX-License-Identifier: Apache-2.0 */
/* run_ethos_u.c: runs payloads from standard input with the model of the NPU.
 *
 * A job is the size of the payload, the number of regions and their sizes (uint32 each), then the
 * payload and the regions. The answer: the result, the size of the error's text, the text, and the
 * regions. Each buffer is an allocation of its own, so that a sanitizer notices every access
 * outside of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ethosu_driver.h"

static void *read_bytes(size_t size)
{
    void *bytes = malloc(size > 0 ? size : 1);
    if (bytes == NULL || fread(bytes, 1, size, stdin) != size) {
        exit(2);
    }
    return bytes;
}

static void write_answer(int32_t result)
{
    const char *error = ethosu_model_error();
    uint32_t length = (uint32_t)strlen(error);
    fwrite(&result, sizeof result, 1, stdout);
    fwrite(&length, sizeof length, 1, stdout);
    fwrite(error, 1, length, stdout);
}

int main(void)
{
    uint32_t header[2];
    while (fread(header, sizeof header, 1, stdin) == 1) {
        uint64_t base[8] = {0};
        size_t sizes[8] = {0};
        uint32_t *counts = read_bytes(4 * header[1]);
        void *payload = read_bytes(header[0]);
        for (uint32_t i = 0; i < header[1]; i++) {
            sizes[i] = counts[i];
            base[i] = (uintptr_t)read_bytes(sizes[i]);
        }
        struct ethosu_driver *driver = ethosu_reserve_driver();
        write_answer(ethosu_invoke(driver, payload, (int)header[0], base, sizes, (int)header[1]));
        ethosu_release_driver(driver);
        for (uint32_t i = 0; i < header[1]; i++) {
            fwrite((void *)(uintptr_t)base[i], 1, sizes[i], stdout);
            free((void *)(uintptr_t)base[i]);
        }
        free(payload);
        free(counts);
    }
    return 0;
}
