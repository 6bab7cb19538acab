/* main.c: a model in a FreeRTOS task, with queues of images and answers.
 *
 * Three tasks: `reader` polls the console for images of 64 bytes, `classifier` owns the model, and
 * `ticker`, with the highest priority, interrupts inferences. Each answer is a line "digit 7
 * preempted 3". Nothing is allocated at run time.
 */
#include <stdint.h>

#include "FreeRTOS.h"
#include "board.h"
#include "digits.h"
#include "queue.h"
#include "task.h"

#define IMAGES 2u
#define STACK_WORDS 512u /* `firmwright build` prints the model's need: 112 bytes */

static uint8_t sram[DIGITS_SRAM_SIZE] __attribute__((aligned(DIGITS_SRAM_ALIGN)));
static uint8_t image_storage[IMAGES * DIGITS_IMAGE_SIZE];
static StaticQueue_t image_queue;
static QueueHandle_t images;
static volatile uint32_t ticks;

static void write_text(const char *text)
{
    for (; *text != '\0'; text++) {
        board_write((uint8_t)*text);
    }
}

static void write_number(uint32_t value)
{
    if (value >= 10u) {
        write_number(value / 10u);
    }
    board_write((uint8_t)('0' + value % 10u));
}

static void read_images(void *unused)
{
    int8_t image[DIGITS_IMAGE_ELEMENTS];
    (void)unused;
    for (uint32_t count = 0;;) {
        int32_t byte = board_read();
        if (byte < 0) {
            vTaskDelay(1);
            continue;
        }
        image[count++] = (int8_t)byte;
        if (count == DIGITS_IMAGE_ELEMENTS) {
            (void)xQueueSend(images, image, portMAX_DELAY);
            count = 0;
        }
    }
}

static void classify(void *unused)
{
    const struct digits_workspace_pools pools = {.sram = sram};
    struct digits_inputs in;
    struct digits_outputs out;
    (void)unused;
    digits_map_io(&pools, &in, &out);
    for (;;) {
        (void)xQueueReceive(images, in.image, portMAX_DELAY);
        const uint32_t before = ticks;
        const int32_t status = digits_run(&in, &out, &pools);
        const uint32_t preempted = ticks - before;
        uint32_t best = 0;
        for (uint32_t i = 1; i < DIGITS_DIGIT_ELEMENTS; i++) {
            best = out.digit[i] > out.digit[best] ? i : best;
        }
        write_text(status == DIGITS_OK ? "digit " : "error ");
        write_number(status == DIGITS_OK ? best : (uint32_t)-status);
        write_text(" preempted ");
        write_number(preempted);
        write_text("\n");
    }
}

static void tick(void *unused)
{
    (void)unused;
    for (;;) {
        ticks++;
        vTaskDelay(1);
    }
}

int main(void)
{
    static StackType_t stacks[3][STACK_WORDS];
    static StaticTask_t tasks[3];

    board_init();
    images = xQueueCreateStatic(IMAGES, DIGITS_IMAGE_SIZE, image_storage, &image_queue);
    (void)xTaskCreateStatic(classify, "classifier", STACK_WORDS, NULL, 1, stacks[0], &tasks[0]);
    (void)xTaskCreateStatic(read_images, "reader", STACK_WORDS, NULL, 2, stacks[1], &tasks[1]);
    (void)xTaskCreateStatic(tick, "ticker", STACK_WORDS, NULL, 3, stacks[2], &tasks[2]);
    vTaskStartScheduler();
    return 1;
}
