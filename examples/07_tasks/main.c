/* main.c: one model in two preemptive tasks, as in an RTOS.
 *
 * digits_run has no global variables; all data is in the caller's pools. Each task therefore has
 * its own pools and needs no lock. The tasks are POSIX threads here; two xTaskCreate calls with the
 * same function work the same. Both classify all images from stdin, in different order, and the
 * results are compared.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "digits.h"

#define IMAGES_MAX 512u

struct task {
    uint8_t sram[DIGITS_SRAM_SIZE] __attribute__((aligned(DIGITS_SRAM_ALIGN)));
    int8_t answers[IMAGES_MAX][DIGITS_DIGIT_ELEMENTS];
    int from_the_end;
    int failed;
};

static int8_t images[IMAGES_MAX][DIGITS_IMAGE_ELEMENTS];
static uint32_t image_count;
static struct task tasks[2];

static void *run_task(void *argument)
{
    struct task *task = argument;
    const struct digits_workspace_pools pools = {.sram = task->sram};
    struct digits_inputs in;
    struct digits_outputs out;
    digits_map_io(&pools, &in, &out);
    for (uint32_t i = 0; i < image_count; i++) {
        uint32_t at = task->from_the_end ? image_count - 1u - i : i;
        memcpy(in.image, images[at], DIGITS_IMAGE_SIZE);
        task->failed |= digits_run(&in, &out, &pools) != DIGITS_OK;
        memcpy(task->answers[at], out.digit, DIGITS_DIGIT_SIZE);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    while (image_count < IMAGES_MAX &&
           fread(images[image_count], 1, DIGITS_IMAGE_SIZE, stdin) == DIGITS_IMAGE_SIZE) {
        image_count++;
    }
    tasks[1].from_the_end = 1;
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, run_task, &tasks[i]) != 0) {
            return 2;
        }
    }
    for (int i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    int differ = memcmp(tasks[0].answers, tasks[1].answers, sizeof tasks[0].answers) != 0;
    printf("%u images in two tasks: %s\n", (unsigned)image_count,
           differ ? "answers differ" : "the same answers");
    return differ || tasks[0].failed || tasks[1].failed;
}
