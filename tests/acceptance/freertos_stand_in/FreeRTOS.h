/* FreeRTOS.h: not FreeRTOS, but a stand-in on POSIX threads with the calls of example 12. */
#ifndef FREERTOS_STAND_IN_H
#define FREERTOS_STAND_IN_H

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define portMAX_DELAY UINT32_MAX
typedef uint32_t StackType_t;
typedef struct {
    pthread_t thread;
    void (*code)(void *);
} StaticTask_t;
typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint8_t *storage;
    uint32_t length, item_bytes, first, count;
} StaticQueue_t, *QueueHandle_t;

static inline void *run_task(void *argument)
{
    ((StaticTask_t *)argument)->code(NULL);
    return NULL;
}

static inline int xTaskCreateStatic(void (*code)(void *), const char *name, uint32_t words, void *argument,
                                    uint32_t priority, StackType_t *stack, StaticTask_t *task)
{
    (void)name, (void)words, (void)argument, (void)priority, (void)stack;
    task->code = code;
    return pthread_create(&task->thread, NULL, run_task, task);
}

static inline void vTaskDelay(uint32_t ticks)
{
    (void)usleep(1000u * ticks);
}

static inline void vTaskStartScheduler(void)
{
    for (;;) {
        (void)pause();
    }
}

static inline QueueHandle_t xQueueCreateStatic(uint32_t length, uint32_t item_bytes, uint8_t *storage,
                                               StaticQueue_t *queue)
{
    *queue = (StaticQueue_t){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, storage,
                             length, item_bytes, 0, 0};
    return queue;
}

static inline int move_item(QueueHandle_t queue, void *item, int sends)
{
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == (sends ? queue->length : 0u)) {
        pthread_cond_wait(&queue->changed, &queue->mutex);
    }
    uint32_t at = (queue->first + (sends ? queue->count : 0u)) % queue->length;
    uint8_t *place = queue->storage + at * queue->item_bytes;
    memcpy(sends ? place : (uint8_t *)item, sends ? (uint8_t *)item : place, queue->item_bytes);
    queue->first += sends ? 0u : 1u;
    queue->count += sends ? 1u : UINT32_MAX;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    return 1;
}

#define xQueueSend(queue, item, delay) move_item(queue, item, 1)
#define xQueueReceive(queue, item, delay) move_item(queue, item, 0)

#endif
