/* SPDX-License-Identifier: Apache-2.0 */
/* port.c (host): firmware as an ordinary process with the link on stdin and stdout.
 *
 * It exits at the end of stdin. The counter is the monotonic clock in nanoseconds. A crash is
 * reported over the link like a fault on a board. Constants read by a function come from the file
 * named by the environment variable FWR_EXTERNAL.
 */
/* NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): required by POSIX */
#define _POSIX_C_SOURCE 200809L

#include "port/fwr_port.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fwr.h"

#define IDLE_WAIT_MS 100
#define EXIT_FATAL 3

#define IN_BYTES 4096

static const struct fwr_port_info info = {"host", "", "ns", 1, 1, 0, 0, IN_BYTES};

static struct {
    uint8_t in[IN_BYTES];
    uint8_t out[4096];
    size_t in_at;
    size_t in_end;
    size_t out_end;
    int busy; /* during a measurement: do not wait for bytes */
    struct timespec start;
    FILE *external; /* source of fwr_port_read */
} host;

/* ---- Bytes --------------------------------------------------------------------------------- */

static void flush(void)
{
    size_t at = 0;
    while (at < host.out_end) {
        ssize_t written = write(STDOUT_FILENO, &host.out[at], host.out_end - at);
        if (written <= 0) {
            _exit(0); /* the host has closed the link */
        }
        at += (size_t)written;
    }
    host.out_end = 0;
}

int32_t fwr_port_byte_in(void)
{
    if (host.in_at == host.in_end) {
        struct pollfd wait = {STDIN_FILENO, POLLIN, 0};
        int wait_ms = host.busy ? 0 : IDLE_WAIT_MS;
        host.busy = 0;
        if (poll(&wait, 1, wait_ms) <= 0) {
            return -1;
        }
        ssize_t got = read(STDIN_FILENO, host.in, sizeof host.in);
        if (got <= 0) {
            _exit(0); /* the host has closed the link */
        }
        host.in_at = 0;
        host.in_end = (size_t)got;
    }
    return host.in[host.in_at++];
}

void fwr_port_byte_out(uint8_t byte)
{
    host.out[host.out_end++] = byte;
    if (host.out_end == sizeof host.out || byte == 0) {
        flush();
    }
}

/* ---- Faults -------------------------------------------------------------------------------- */

static void on_crash(int number, siginfo_t *about, void *context)
{
    (void)context;
    static struct fwr_fault fault;
    uint64_t address = (uint64_t)(uintptr_t)about->si_addr;
    fault.family = FWR_FAULT_HOST;
    fault.words[0] = (uint32_t)number;
    fault.words[1] = (uint32_t)address;
    fault.words[2] = (uint32_t)(address >> 32);
    fwr_fault(&fault);
}

static void catch_crashes(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_crash;
    action.sa_flags = (int)SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        (void)sigaction(numbers[i], &action, 0);
    }
}

/* ---- The rest ------------------------------------------------------------------------------ */

void fwr_port_init(void)
{
    (void)clock_gettime(CLOCK_MONOTONIC, &host.start);
    (void)signal(SIGPIPE, SIG_IGN);
    catch_crashes();
}

const struct fwr_port_info *fwr_port_info(void)
{
    return &info;
}

uint64_t fwr_port_counter(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t seconds = (int64_t)now.tv_sec - (int64_t)host.start.tv_sec;
    return (uint64_t)(seconds * 1000000000 + (now.tv_nsec - host.start.tv_nsec));
}

void fwr_port_counter_align(void)
{
    host.busy = 1;
}

FWR_NORETURN void fwr_port_reset(void)
{
    static char name[] = "firmware";
    char *arguments[] = {name, 0};
    sigset_t none;
    flush();
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, 0); /* a crash handler's mask would survive the exec */
    (void)execv("/proc/self/exe", arguments);
    _exit(EXIT_FATAL);
}

FWR_NORETURN void fwr_port_fatal(void)
{
    flush();
    _exit(EXIT_FATAL);
}

/* A file named by the environment emulates memory that is not addressable. */
int32_t fwr_port_read(uint32_t offset, void *dst, uint32_t size)
{
    if (host.external == NULL) {
        const char *name = getenv("FWR_EXTERNAL");
        host.external = name == NULL ? NULL : fopen(name, "rb");
    }
    if (host.external == NULL || fseek(host.external, (long)offset, SEEK_SET) != 0 ||
        fread(dst, 1, size, host.external) != size) {
        return FWR_E_IO;
    }
    return FWR_OK;
}

int32_t fwr_port_read_start(uint32_t offset, void *dst, uint32_t size)
{
    return fwr_port_read(offset, dst, size);
}

int32_t fwr_port_read_wait(void)
{
    return FWR_OK;
}
