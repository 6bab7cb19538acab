/* host_main.c: run kernels on the host. Each input record is a kernel number, the pattern (0 or 255)
 * and the input bytes; each output record is the result bytes and the status of conform_run.
 */
#include <stdio.h>

#include "harness.h"

void conform_input(const struct conform_kernel *kernel, uint32_t position, uint8_t *to)
{
    for (uint32_t k = 0; k < kernel->count; ++k) {
        if (kernel->arguments[k].role == CONFORM_IN && position-- == 0) {
            if (fread(to, kernel->arguments[k].bytes, 1, stdin) != 1) {
                fprintf(stderr, "unexpected end of input\n");
            }
            return;
        }
    }
}

void conform_output(const uint8_t *from, uint32_t bytes)
{
    fwrite(from, bytes, 1, stdout);
}

int main(void)
{
    uint32_t record[2];
    while (fread(record, sizeof record, 1, stdin) == 1) {
        if (record[0] >= CONFORM_KERNELS) {
            return 2;
        }
        fprintf(stderr, "kernel %u\n", (unsigned)record[0]); /* names the kernel of a crash */
        const int32_t status = conform_run(record[0], (uint8_t)record[1]);
        fwrite(&status, sizeof status, 1, stdout);
    }
    return 0;
}
