/* fuzz_main.c: runs a fuzz test without libFuzzer, on random inputs or on a file.
 *
 *     program CASES SEED MAX_BYTES
 *     program FILE
 *
 * The same numbers give the same inputs on every machine. A case that ends the program is written
 * to the file "finding" first.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz_choices.h"

#define FILE_MAX 65536u

/* Of the sanitizers: called before they end the program. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static struct {
    uint64_t state;
    uint8_t *input;
    size_t size;
} random_case;

static uint32_t next_random(void)
{
    random_case.state =
        random_case.state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_case.state >> 33);
}

static void keep_finding(void)
{
    FILE *file = fopen("finding", "wb");
    if (file != NULL) {
        fwrite(random_case.input, 1, random_case.size, file);
        fclose(file);
    }
}

static void keep_aborted(int number)
{
    keep_finding();
    signal(number, SIG_DFL);
    raise(number);
}

static int run_file(const char *path)
{
    static uint8_t input[FILE_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 2;
    }
    size_t size = fread(input, 1, sizeof input, file);
    fclose(file);
    return LLVMFuzzerTestOneInput(input, size);
}

int main(int count, char **words)
{
    if (count == 2) {
        return run_file(words[1]);
    }
    if (count != 4) {
        return 2;
    }
    unsigned long cases = strtoul(words[1], NULL, 10);
    unsigned long most = strtoul(words[3], NULL, 10);
    random_case.state = strtoul(words[2], NULL, 10);
    signal(SIGABRT, keep_aborted);
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(keep_finding);
    }
    for (unsigned long i = 0; i < cases; i++) {
        random_case.size = next_random() % most;
        random_case.input = malloc(random_case.size + 1u);
        for (size_t at = 0; at < random_case.size; at++) {
            random_case.input[at] = (uint8_t)next_random();
        }
        LLVMFuzzerTestOneInput(random_case.input, random_case.size);
        free(random_case.input);
    }
    return 0;
}
