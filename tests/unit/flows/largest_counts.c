/* largest_counts.c: a QEMU plugin with the most executions of each instruction in a call.
 *
 *     -plugin file=largest_counts.so,from=ADDRESS,out=FILE,caller=ADDRESS:SIZE[:ADDRESS:SIZE...]
 *
 * A call begins at the address `from`, and ends when one of the callers executes code again. FILE
 * then has a row for each instruction and one for all: address, maximum, as text.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_interface.h"

#define ROOM (1u << 17)

struct record {
    uint64_t address;
    uint64_t count;
    uint64_t before;
    uint64_t largest;
};

static struct record records[ROOM];
static size_t used;
static uint64_t from, largest, calls;
static uint64_t callers[6]; /* address, size, address, size ... */
static int is_open;
static const char *path;

static void executed(unsigned int cpu, void *data)
{
    (void)cpu;
    ++((struct record *)data)->count;
}

static void begin(unsigned int cpu, void *data)
{
    (void)cpu;
    (void)data;
    for (size_t i = 0; i < used; ++i) {
        records[i].before = records[i].count;
    }
    is_open = 1;
}

static void end(unsigned int cpu, void *data)
{
    uint64_t sum = 0;
    (void)cpu;
    (void)data;
    if (is_open == 0) {
        return;
    }
    is_open = 0;
    ++calls;
    for (size_t i = 0; i < used; ++i) {
        const uint64_t count = records[i].count - records[i].before;
        records[i].largest = count > records[i].largest ? count : records[i].largest;
        sum += count;
    }
    largest = sum > largest ? sum : largest;
    FILE *const file = fopen(path, "w");
    if (file != NULL) {
        fprintf(file, "%" PRIu64 " %" PRIu64 "\n", calls, largest);
        for (size_t i = 0; i < used; ++i) {
            fprintf(file, "%" PRIu64 " %" PRIu64 "\n", records[i].address, records[i].largest);
        }
        fclose(file);
    }
}

static struct record *find(uint64_t address)
{
    size_t i = 0;
    while (i < used && records[i].address != address) {
        ++i;
    }
    if (i == ROOM) {
        abort();
    }
    used += i == used;
    records[i].address = address;
    return &records[i];
}

static int is_in_caller(uint64_t address)
{
    for (size_t i = 0; i < 6; i += 2) {
        if (address - callers[i] < callers[i + 1]) {
            return 1;
        }
    }
    return 0;
}

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); ++i) {
        struct qemu_plugin_insn *const insn = qemu_plugin_tb_get_insn(block, i);
        const uint64_t address = qemu_plugin_insn_vaddr(insn);
        struct record *const record = find(address);
        if (address == from) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, begin, CALLBACK_WITHOUT_REGISTERS, NULL);
        }
        if (is_in_caller(address)) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, end, CALLBACK_WITHOUT_REGISTERS, NULL);
        }
        qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, CALLBACK_WITHOUT_REGISTERS, record);
    }
}

EXPORTED int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; ++i) {
        char *value = strchr(arguments[i], '=') + 1;
        if (strncmp(arguments[i], "out=", 4) == 0) {
            path = value;
        } else if (strncmp(arguments[i], "from=", 5) == 0) {
            from = strtoull(value, NULL, 10);
        } else if (strncmp(arguments[i], "caller=", 7) == 0) {
            for (size_t k = 0; k < 6 && *value != '\0'; ++k) {
                callers[k] = strtoull(value, &value, 10);
                value += *value == ':';
            }
        }
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return path == NULL ? -1 : 0;
}
