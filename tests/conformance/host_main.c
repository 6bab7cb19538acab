/* host_main.c: the kernels as a program. In: records of a kernel's number, the pattern (0 or 255)
 * and the bytes of its inputs. Out: for each the bytes of its result and what conform_run found.
 */
#include <stdio.h>

#include "harness.h"

void conform_input(const struct conform_kernel *kernel, uint32_t position, uint8_t *to)
{
    for (uint32_t k = 0; k < kernel->count; ++k) {
        if (kernel->arguments[k].role == CONFORM_IN && position-- == 0) {
            if (fread(to, kernel->arguments[k].bytes, 1, stdin) != 1) {
                fprintf(stderr, "the input ends too early\n");
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
        fprintf(stderr, "kernel %u\n", (unsigned)record[0]); /* the last one, should it die */
        const int32_t found = conform_run(record[0], (uint8_t)record[1]);
        fwrite(&found, sizeof found, 1, stdout);
    }
    return 0;
}
