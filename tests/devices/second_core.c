/* second_core.c: a thread acts as the second core of a model compiled for two.
 *
 *     second_core MODE      prints the device's callbacks, one letter each, and the status
 *
 * MODE: "thread" (a worker executes the calls, after a delay), "refuse" (no call starts), "break"
 * (the first wait fails), "asleep" (activation fails). The outputs are compared with those of a
 * device that executes each call at its start. Built with NAME, HEADER, INPUT and OUTPUT defined.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include HEADER

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define C(name) JOIN(NAME, name)
#define CALLS 256

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t calls[CALLS];
    uint32_t posted;
    uint32_t done;
    const struct C(_workspace_pools) *pools;
    const char *mode;
    char life[4 * CALLS];
} core = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&core.lock);
    for (;;) {
        while (core.posted == core.done) {
            pthread_cond_wait(&core.changed, &core.lock);
        }
        const uint32_t call = core.calls[core.done];
        const struct C(_workspace_pools) *pools = core.pools;
        pthread_mutex_unlock(&core.lock);
        nanosleep(&(struct timespec){0, 200000}, NULL);
        C(_on_cpu1)(call, pools);
        pthread_mutex_lock(&core.lock);
        core.done++;
        pthread_cond_broadcast(&core.changed);
    }
    return NULL;
}

static int32_t live(char step)
{
    core.life[strlen(core.life)] = step;
    return 0;
}

static int32_t activate(void *context)
{
    (void)context;
    live('A');
    return strcmp(core.mode, "asleep") == 0 ? -1 : 0;
}

static int32_t open_it(void *context)
{
    (void)context;
    return live('o');
}

static int32_t close_it(void *context)
{
    (void)context;
    return live('c');
}

static int32_t deactivate(void *context)
{
    (void)context;
    return live('D');
}

static int32_t start(void *context, uint32_t call, const struct C(_workspace_pools) *pools)
{
    (void)context;
    live('s');
    if (strcmp(core.mode, "thread") != 0 && strcmp(core.mode, "break") != 0) {
        return -1;
    }
    pthread_mutex_lock(&core.lock);
    core.pools = pools;
    core.calls[core.posted++] = call;
    pthread_cond_broadcast(&core.changed);
    pthread_mutex_unlock(&core.lock);
    return 0;
}

static int32_t wait_for(void *context, uint32_t call)
{
    (void)context;
    (void)call;
    live('w');
    pthread_mutex_lock(&core.lock);
    uint32_t last = 0;
    for (uint32_t i = 0; i < core.posted; i++) {
        last = core.calls[i] == call ? i : last;
    }
    while (core.done <= last) {
        pthread_cond_wait(&core.changed, &core.lock);
    }
    pthread_mutex_unlock(&core.lock);
    return strcmp(core.mode, "break") == 0 ? -1 : 0;
}

static int32_t start_here(void *context, uint32_t call, const struct C(_workspace_pools) *pools)
{
    (void)context;
    C(_on_cpu1)(call, pools);
    return 0;
}

static int32_t wait_here(void *context, uint32_t call)
{
    (void)context;
    (void)call;
    return 0;
}

static uint8_t memory[2][SRAM] __attribute__((aligned(64)));

static int32_t run(int which, const struct C(_devices) *devices, uint8_t *result)
{
    const struct C(_workspace_pools) pools = {.sram = memory[which]};
    struct C(_inputs) in;
    struct C(_outputs) out;
    C(_map_io)(&pools, &in, &out);
    for (size_t i = 0; i < INPUT_BYTES; i++) {
        ((uint8_t *)in.INPUT)[i] = (uint8_t)(i * 37u + i * i % 251u);
    }
    const int32_t status = C(_run)(&in, &out, &pools, devices);
    memcpy(result, out.OUTPUT, OUTPUT_BYTES);
    return status;
}

int main(int count, char **words)
{
    static uint8_t here[OUTPUT_BYTES], there[OUTPUT_BYTES];
    const struct C(_devices) at_once = {.cpu1 = {.start = start_here, .wait = wait_here}};
    const struct C(_devices) device = {
        .cpu1 = {activate, open_it, start, wait_for, close_it, deactivate, NULL},
    };
    pthread_t worker;
    core.mode = count > 1 ? words[1] : "thread";
    if (pthread_create(&worker, NULL, work, NULL) != 0 || run(0, &at_once, here) != 0) {
        return 2;
    }
    const int32_t status = run(1, &device, there);
    printf("%s %d %s\n", core.life, (int)status, memcmp(here, there, sizeof here) ? "other" : "same");
    return 0;
}
