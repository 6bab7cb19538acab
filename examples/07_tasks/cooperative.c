/* cooperative.c: two cooperative tasks on one core without an RTOS, which alternate after each
 * operator.
 *
 * digits_step executes the next operator of an inference and returns. The position is kept in the
 * task's digits_progress, the data in the task's own pools. Images of 64 bytes arrive over the UART
 * in pairs; the digits are returned in order.
 */
#include <stdint.h>

#include "digits.h"
#include "port/fwr_port.h"

#define TASKS 2

struct task {
    uint32_t sram[(DIGITS_SRAM_SIZE + 3) / 4] __attribute__((aligned(DIGITS_SRAM_ALIGN)));
    struct digits_workspace_pools pools;
    struct digits_inputs in;
    struct digits_outputs out;
    struct digits_progress at; /* zeros: start of an inference */
    int32_t status;
};

static struct task tasks[TASKS];

static void receive(int8_t *image)
{
    for (uint32_t i = 0; i < DIGITS_IMAGE_ELEMENTS;) {
        int32_t byte = fwr_port_byte_in();
        if (byte >= 0) {
            image[i++] = (int8_t)(uint8_t)byte;
        }
    }
}

/* Executes one operator of each unfinished task in turn; other work could run in between. */
static void run_all(void)
{
    int32_t left = TASKS;
    while (left > 0) {
        left = 0;
        for (int32_t i = 0; i < TASKS; i++) {
            struct task *task = &tasks[i];
            if (task->status == DIGITS_MORE) {
                task->status = digits_step(&task->at, &task->in, &task->out, &task->pools);
                left += task->status == DIGITS_MORE;
            }
        }
    }
}

static void answer(const struct task *task)
{
    int32_t best = 0;
    for (int32_t i = 1; i < DIGITS_DIGIT_ELEMENTS; i++) {
        best = task->out.digit[i] > task->out.digit[best] ? i : best;
    }
    fwr_port_byte_out((uint8_t)(task->status == DIGITS_OK ? '0' + best : '?'));
    fwr_port_byte_out('\r');
    fwr_port_byte_out('\n');
}

int main(void)
{
    fwr_port_init();
    for (int32_t i = 0; i < TASKS; i++) {
        tasks[i].pools.sram = (uint8_t *)tasks[i].sram;
        digits_map_io(&tasks[i].pools, &tasks[i].in, &tasks[i].out);
    }
    for (;;) {
        for (int32_t i = 0; i < TASKS; i++) {
            receive(tasks[i].in.image);
            tasks[i].status = DIGITS_MORE;
        }
        run_all();
        for (int32_t i = 0; i < TASKS; i++) {
            answer(&tasks[i]);
        }
    }
}
