/* operands.c: a QEMU plugin that reports accesses of operators to memory other than their operands.
 *
 *     -plugin file=operands.so,out=FILE
 *
 * FILE must exist. It is mapped, so its contents survive a killed emulator. Its layout:
 *
 *     struct header
 *     struct operand_list, for each operator     its first operand and their number
 *     struct range, `areas` times                the memory that is watched, in ascending order
 *     struct range, `operands` times
 *     struct fault, `fault_room` times
 *
 * The firmware stores a byte at `marks` + N when operator N starts, and at `marks` + `operators`
 * when one has ended; start-up code, which clears the marks, stores words. In between, each access that touches an area must be in one of the
 * operator's operands, by whichever core and function. The first wrong access of each instruction
 * during each operator is reported. Memory outside the areas, such as the stack, is not watched.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qemu_interface.h"

#define MAGIC 0x31707766u /* "fwp1" */
#define NO_OPERATOR UINT32_MAX

struct header {
    uint32_t magic; /* set when the plugin is loaded */
    uint32_t marks;
    uint32_t operators;
    uint32_t areas;
    uint32_t operands;
    uint32_t fault_room;
    uint32_t faults;   /* used */
    uint32_t overflow; /* nonzero: faults are missing */
};

struct operand_list {
    uint32_t first;
    uint32_t count;
};

struct range {
    uint32_t from;
    uint32_t bytes;
};

struct fault {
    uint32_t operator_index;
    uint32_t instruction; /* its address */
    uint32_t address;
    uint32_t bytes;
    uint32_t is_store;
};

static struct {
    struct header *header;
    struct header sizes; /* those that were checked */
    const struct operand_list *lists;
    const struct range *areas;
    const struct range *operands;
    struct fault *faults;
    uint32_t running; /* the operator, or NO_OPERATOR */
} state;

static int touches(const struct range *range, uint64_t from, uint64_t end)
{
    return from < (uint64_t)range->from + range->bytes && end > range->from;
}

/* Returns 1 if an access touches an area: the areas are disjoint and in order. */
static int is_watched(uint64_t from, uint64_t end)
{
    uint32_t low = 0;
    uint32_t high = state.sizes.areas;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2u;
        if ((uint64_t)state.areas[middle].from + state.areas[middle].bytes <= from) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low < state.sizes.areas && touches(&state.areas[low], from, end);
}

/* Returns 1 if one operand of the running operator has all bytes of an access. */
static int is_operand(uint64_t from, uint64_t end)
{
    const struct operand_list *const list = &state.lists[state.running];
    for (uint32_t i = 0; i < list->count; ++i) {
        const struct range *const operand = &state.operands[list->first + i];
        if (from >= operand->from && end <= (uint64_t)operand->from + operand->bytes) {
            return 1;
        }
    }
    return 0;
}

static void report(const struct fault *fault)
{
    const uint32_t used = state.header->faults;
    if (used >= state.sizes.fault_room) {
        state.header->overflow = 1;
        return;
    }
    for (uint32_t i = 0; i < used; ++i) {
        if (state.faults[i].operator_index == fault->operator_index &&
            state.faults[i].instruction == fault->instruction) {
            return;
        }
    }
    state.faults[used] = *fault;
    state.header->faults = used + 1u;
}

static void accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
    (void)cpu;
    const uint32_t bytes = 1u << qemu_plugin_mem_size_shift(info);
    const uint64_t end = address + bytes;
    const int is_store = qemu_plugin_mem_is_store(info);
    if (is_store && bytes == 1u && address - state.sizes.marks <= state.sizes.operators) {
        const uint32_t mark = (uint32_t)(address - state.sizes.marks);
        state.running = mark < state.sizes.operators ? mark : NO_OPERATOR;
    } else if (state.running != NO_OPERATOR && is_watched(address, end) &&
               !is_operand(address, end)) {
        const struct fault fault = {state.running, (uint32_t)(uintptr_t)data, (uint32_t)address,
                                    bytes, (uint32_t)is_store};
        report(&fault);
    }
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    const size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < count; ++i) {
        struct qemu_plugin_insn *const insn = qemu_plugin_tb_get_insn(block, i);
        void *const address = (void *)(uintptr_t)qemu_plugin_insn_vaddr(insn);
        qemu_plugin_register_vcpu_mem_cb(insn, accessed, CALLBACK_WITHOUT_REGISTERS,
                                         READS_AND_WRITES, address);
    }
}

/* Returns 0 if the tables have the file's size and refer to each other within their bounds. */
static int find_tables(uint64_t file_bytes)
{
    const struct header *const sizes = &state.sizes;
    const uint64_t needed = sizeof *sizes + sizes->operators * sizeof(struct operand_list) +
                            ((uint64_t)sizes->areas + sizes->operands) * sizeof(struct range) +
                            sizes->fault_room * sizeof(struct fault);
    if (needed != file_bytes) {
        return -1;
    }
    state.lists = (const struct operand_list *)(state.header + 1);
    state.areas = (const struct range *)(state.lists + sizes->operators);
    state.operands = state.areas + sizes->areas;
    state.faults = (struct fault *)(state.operands + sizes->operands);
    for (uint32_t i = 0; i < sizes->operators; ++i) {
        const struct operand_list *const list = &state.lists[i];
        if ((uint64_t)list->first + list->count > sizes->operands) {
            return -1;
        }
    }
    return 0;
}

static int map_file(const char *path)
{
    struct stat facts;
    const int file = open(path, O_RDWR);
    if (file < 0 || fstat(file, &facts) != 0 || facts.st_size < (off_t)sizeof(struct header)) {
        fprintf(stderr, "operands: %s cannot be used\n", path);
        return -1;
    }
    void *const memory =
        mmap(NULL, (size_t)facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "operands: %s cannot be mapped\n", path);
        return -1;
    }
    state.header = memory;
    state.sizes = *state.header;
    if (find_tables((uint64_t)facts.st_size) != 0) {
        fprintf(stderr, "operands: the tables in %s are damaged\n", path);
        return -1;
    }
    return 0;
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **arguments)
{
    const char *path = NULL;
    (void)info;
    for (int i = 0; i < count; ++i) {
        if (strncmp(arguments[i], "out=", 4) == 0) {
            path = arguments[i] + 4;
        }
    }
    if (path == NULL || map_file(path) != 0) {
        return -1;
    }
    state.running = NO_OPERATOR;
    state.header->faults = 0;
    state.header->magic = MAGIC;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
