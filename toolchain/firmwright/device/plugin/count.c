/* count.c: a QEMU plugin that counts executed guest instructions by address and call site.
 *
 *     -plugin file=count.so,from=ADDRESS,bytes=SIZE,out=FILE[,steps=N,watch=ADDRESS:SIZE...]
 *         [,skip=ADDRESS...][,flash=ADDRESS:SIZE:WAITS:LINE:INSTRUCTION_CACHE:DATA_CACHE:WAYS:UNIFIED:PREFETCH]
 *         [,ram=ADDRESS:SIZE:WAITS]
 *
 * `from` and `bytes` give the range of one function, the root. Every instruction executed between
 * two instructions of the root is attributed to the former, its site, so a call in the root
 * collects its callees at any depth. Entering the root resets all counts; only the last call
 * counts. Instructions after the root's return are attributed to the return and discarded.
 *
 * With `skip`, calls of the function at ADDRESS are counted apart: a model of hardware, for
 * example.
 *
 * Only core 0 is counted. With `steps`, both cores are traced as well: the watched functions are
 * numbered in order, and each change of a core from one to another is recorded. Other code belongs
 * to the function that ran before. Entering the root resets the trace.
 *
 * With `flash`, reads of that region are simulated: it is read in lines of LINE bytes with WAITS
 * cycles each. The caches (sizes in bytes) hold some of them and replace the least recently used.
 * WAYS 0 is fully associative; UNIFIED 1 uses the first cache for data as well. With PREFETCH 1 the
 * line after the one that was fetched is read while its instructions execute, one a cycle. Stalls
 * and unaligned accesses are counted with the instruction that causes them.
 *
 * With `ram`, reads of that region wait WAITS cycles for lines that the cache of flash data does
 * not hold. Writes take lines of the cache, but never wait: they are buffered.
 *
 * FILE must exist with the required size. It is mapped, so its contents survive a killed emulator.
 * Its layout is struct header, N times struct step, then struct cell in order of first execution.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qemu_interface.h"

#define MAGIC 0x32637766u /* "fwc2" */
#define SLOTS (1u << 20)  /* hash table size; a power of two */
#define NO_SITE UINT32_MAX
#define NO_ADDRESS UINT32_MAX

struct header {
    uint32_t magic;
    uint32_t cells;    /* used */
    uint32_t entries;  /* calls of the root */
    uint32_t overflow; /* nonzero: the file is full and counts are missing */
    uint32_t steps;    /* used */
    uint32_t step_room;
};

#define CACHE_LINES 4096u
#define CORES 2u
#define WATCHED 4096u
#define SKIPPED 16u
#define NO_FUNCTION UINT32_MAX

/* Core `cpu` entered the watched function `function`; `executed` counts the instructions of each
 * core since the root was entered, and last those of skipped calls. */
struct step {
    uint32_t cpu;
    uint32_t function;
    uint64_t executed[CORES + 1];
};

/* Executions of the instruction at `address` on behalf of `site`; `taken` of them branched. */
struct cell {
    uint32_t address;
    uint32_t site;
    uint64_t count;
    uint64_t taken;
    uint64_t fetch_stalls; /* cycles, as the next */
    uint64_t data_stalls;
    uint64_t unaligned; /* more accesses than one for each */
};

/* A cache of flash lines; a cache of size 0 holds only the line that was read last. */
struct cache {
    uint32_t lines;
    uint32_t ways;
    uint32_t last;
    uint64_t now;
    uint32_t line[CACHE_LINES];
    uint64_t used[CACHE_LINES]; /* 0: empty */
};

struct instruction {
    uint32_t address;
    uint32_t size;
    uint32_t site; /* of `cell` */
    struct cell *cell;
    uint32_t function; /* index of the watched function that contains it, or NO_FUNCTION */
};

static struct {
    uint32_t from;
    uint32_t bytes;
    struct header *header;
    struct cell *cells;
    uint32_t room;
    uint32_t site;
    uint32_t next;
    struct cell *last;
    struct cell nobody;
    uint32_t skipped[SKIPPED]; /* the functions that are counted apart */
    uint32_t skipped_count;
    uint32_t skips_until; /* the return address during a call of one, else NO_ADDRESS */
} state;

static struct {
    struct step *steps;
    uint64_t executed[CORES + 1];
    uint32_t function[CORES];
    uint32_t from[WATCHED];
    uint32_t bytes[WATCHED];
    uint32_t watched;
} trace;

static struct {
    uint32_t from;
    uint32_t bytes; /* 0: no simulation */
    uint32_t waits;
    uint32_t line_bytes;
    uint32_t prefetches;
    uint32_t prefetched;   /* the line being read */
    uint64_t prefetch_end; /* in executed instructions */
    uint64_t executed;
    struct cache instructions;
    struct cache data;
    struct cache *of_data;
} flash;

static struct {
    uint32_t from;
    uint32_t bytes; /* 0: no simulation */
    uint32_t waits;
} ram;

static uint32_t cell_slots[SLOTS]; /* index + 1 of a cell; 0 is free */
static struct instruction *instruction_slots[SLOTS];

static uint32_t slot_of(uint32_t address, uint32_t site)
{
    return ((address >> 1) * 2654435761u ^ (site >> 1) * 2246822519u) & (SLOTS - 1u);
}

static struct cell *find_cell(uint32_t address, uint32_t site)
{
    uint32_t slot = slot_of(address, site);
    for (; cell_slots[slot] != 0; slot = (slot + 1u) & (SLOTS - 1u)) {
        struct cell *const cell = &state.cells[cell_slots[slot] - 1u];
        if (cell->address == address && cell->site == site) {
            return cell;
        }
    }
    if (state.header->cells >= state.room || state.header->cells >= SLOTS / 2u) {
        state.header->overflow = 1;
        return &state.nobody;
    }
    struct cell *const cell = &state.cells[state.header->cells++];
    cell_slots[slot] = state.header->cells;
    cell->address = address;
    cell->site = site;
    return cell;
}

static void start_anew(void)
{
    for (uint32_t i = 0; i < state.header->cells; ++i) {
        state.cells[i].count = 0;
        state.cells[i].taken = 0;
        state.cells[i].fetch_stalls = 0;
        state.cells[i].data_stalls = 0;
        state.cells[i].unaligned = 0;
    }
    ++state.header->entries;
    state.header->steps = 0;
    for (uint32_t i = 0; i < CORES; ++i) {
        trace.function[i] = NO_FUNCTION;
    }
    memset(trace.executed, 0, sizeof trace.executed);
}

static void follow(unsigned int cpu, const struct instruction *now)
{
    if (now->function != NO_FUNCTION && now->function != trace.function[cpu]) {
        trace.function[cpu] = now->function;
        if (state.header->steps < state.header->step_room) {
            struct step *const step = &trace.steps[state.header->steps++];
            step->cpu = cpu;
            step->function = now->function;
            memcpy(step->executed, trace.executed, sizeof step->executed);
        } else {
            state.header->overflow = 1;
        }
    }
    ++trace.executed[cpu];
}

/* Reads the line of `address`; returns 1 if neither the last line nor the cache holds it. */
static uint32_t misses(struct cache *cache, uint32_t address)
{
    const uint32_t line = address / flash.line_bytes;
    if (line == cache->last) {
        return 0;
    }
    cache->last = line;
    if (cache->lines == 0) {
        return 1;
    }
    const uint32_t first = line % (cache->lines / cache->ways) * cache->ways;
    uint32_t oldest = first;
    for (uint32_t i = first; i < first + cache->ways; ++i) {
        if (cache->used[i] != 0 && cache->line[i] == line) {
            cache->used[i] = ++cache->now;
            return 0;
        }
        if (cache->used[i] < cache->used[oldest]) {
            oldest = i;
        }
    }
    cache->line[oldest] = line;
    cache->used[oldest] = ++cache->now;
    return 1;
}

/* Fetches from `address` and returns the cycles that the core waits. */
static uint64_t fetch_stalls(uint32_t address)
{
    if (misses(&flash.instructions, address) == 0) {
        return 0;
    }
    const uint32_t line = address / flash.line_bytes;
    uint64_t stalls = flash.waits;
    if (flash.prefetches != 0 && line == flash.prefetched) {
        stalls = flash.prefetch_end > flash.executed ? flash.prefetch_end - flash.executed : 0;
    }
    flash.executed += stalls;
    flash.prefetched = line + 1u;
    flash.prefetch_end = flash.executed + flash.waits + 1u;
    return stalls;
}

static void accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
    (void)data;
    if (cpu != 0 || state.skips_until != NO_ADDRESS) {
        return;
    }
    const uint32_t at = (uint32_t)address;
    const uint32_t bytes = 1u << qemu_plugin_mem_size_shift(info);
    if ((at & (bytes - 1u)) != 0) {
        state.last->unaligned += bytes == 4u && (at & 1u) != 0 ? 2u : 1u;
    }
    if (at - flash.from < flash.bytes) {
        state.last->data_stalls += flash.waits * misses(flash.of_data, at);
    } else if (at - ram.from < ram.bytes) {
        const uint32_t missed = misses(flash.of_data, at);
        if (!qemu_plugin_mem_is_store(info)) {
            state.last->data_stalls += ram.waits * missed;
        }
    }
}

/* Returns 1 if `address` follows an instruction that ends at `end`. QEMU increases the size of an
 * instruction by the first halfword of the next one if that crosses a page of 1 KiB. */
static int follows(uint32_t address, uint32_t end)
{
    return address == end || ((address & 1023u) == 1022u && end - address == 2u);
}

static int is_skipped_function(uint32_t address)
{
    for (uint32_t i = 0; i < state.skipped_count; ++i) {
        if (address == state.skipped[i]) {
            return 1;
        }
    }
    return 0;
}

/* Returns 1 for an instruction of a call that is counted apart. */
static int skips(uint32_t address)
{
    if (state.skips_until != NO_ADDRESS && follows(address, state.skips_until)) {
        state.skips_until = NO_ADDRESS;
        state.next = NO_ADDRESS; /* the call was a branch that was taken */
    } else if (state.skips_until == NO_ADDRESS && is_skipped_function(address)) {
        state.skips_until = state.next;
    }
    return state.skips_until != NO_ADDRESS;
}

static void executed(unsigned int cpu, void *data)
{
    struct instruction *const now = data;
    if (cpu == 0 && skips(now->address)) {
        ++trace.executed[CORES];
        return;
    }
    const int is_entry = cpu == 0 && now->address == state.from;
    if (trace.watched != 0 && cpu < CORES && !is_entry) {
        follow(cpu, now);
    }
    if (cpu != 0) {
        return;
    }
    if (!follows(now->address, state.next)) {
        ++state.last->taken;
    }
    if (now->address - state.from < state.bytes) {
        if (is_entry) {
            start_anew();
            if (trace.watched != 0) {
                follow(cpu, now);
            }
        }
        state.site = now->address;
    }
    if (now->site != state.site) {
        now->cell = find_cell(now->address, state.site);
        now->site = state.site;
    }
    ++now->cell->count;
    if (now->address - flash.from < flash.bytes) {
        now->cell->fetch_stalls +=
            fetch_stalls(now->address) + fetch_stalls(now->address + now->size - 1u);
        ++flash.executed;
    }
    state.last = now->cell;
    state.next = now->address + now->size;
}

static uint32_t watched_at(uint32_t address)
{
    for (uint32_t i = 0; i < trace.watched; ++i) {
        if (address - trace.from[i] < trace.bytes[i]) {
            return i;
        }
    }
    return NO_FUNCTION;
}

/* Returns the record of an instruction, the same for every translation of its block. */
static struct instruction *find_instruction(const struct qemu_plugin_insn *insn)
{
    const uint32_t address = (uint32_t)qemu_plugin_insn_vaddr(insn);
    uint32_t slot = slot_of(address, 0);
    uint32_t probes = 0;
    while (instruction_slots[slot] != NULL && instruction_slots[slot]->address != address) {
        slot = (slot + 1u) & (SLOTS - 1u);
        if (++probes == SLOTS) {
            return NULL;
        }
    }
    struct instruction *found = instruction_slots[slot];
    if (found == NULL) {
        found = malloc(sizeof *found);
        if (found == NULL) {
            return NULL;
        }
        found->address = address;
        found->site = NO_SITE;
        found->cell = &state.nobody;
        found->function = watched_at(found->address);
        instruction_slots[slot] = found;
    }
    found->size = (uint32_t)qemu_plugin_insn_size(insn);
    return found;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    const size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < count; ++i) {
        struct qemu_plugin_insn *const insn = qemu_plugin_tb_get_insn(block, i);
        struct instruction *const record = find_instruction(insn);
        if (record == NULL) {
            state.header->overflow = 1;
        } else {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, CALLBACK_WITHOUT_REGISTERS,
                                                   record);
            qemu_plugin_register_vcpu_mem_cb(insn, accessed, CALLBACK_WITHOUT_REGISTERS,
                                             READS_AND_WRITES, NULL);
        }
    }
}

static int map_file(const char *path, uint32_t steps)
{
    struct stat facts;
    const int file = open(path, O_RDWR);
    if (file < 0 || fstat(file, &facts) != 0 || facts.st_size < (off_t)sizeof(struct header)) {
        fprintf(stderr, "count: %s cannot be used\n", path);
        return -1;
    }
    const size_t bytes = (size_t)facts.st_size;
    void *const memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "count: %s cannot be mapped\n", path);
        return -1;
    }
    const size_t taken = sizeof(struct header) + (size_t)steps * sizeof(struct step);
    if (taken > bytes) {
        fprintf(stderr, "count: %s is too small\n", path);
        return -1;
    }
    state.header = memory;
    state.header->step_room = steps;
    trace.steps = (struct step *)(state.header + 1);
    state.cells = (struct cell *)(trace.steps + steps);
    state.room = (uint32_t)((bytes - taken) / sizeof(struct cell));
    return 0;
}

/* ADDRESS:SIZE */
static void watch(const char *words)
{
    char *rest = NULL;
    if (trace.watched < WATCHED) {
        trace.from[trace.watched] = (uint32_t)strtoul(words, &rest, 0);
        trace.bytes[trace.watched] = (uint32_t)strtoul(rest + 1, NULL, 0);
        ++trace.watched;
    }
}

static void skip(const char *words)
{
    if (state.skipped_count < SKIPPED) {
        state.skipped[state.skipped_count++] = (uint32_t)strtoul(words, NULL, 0);
    }
}

static void set_cache(struct cache *cache, uint32_t bytes, uint32_t ways)
{
    cache->last = UINT32_MAX;
    cache->lines = bytes / flash.line_bytes;
    if (cache->lines > CACHE_LINES) {
        cache->lines = CACHE_LINES;
    }
    cache->ways = ways != 0 && ways < cache->lines ? ways : cache->lines;
}

/* Reads `count` numbers with colons between them. */
static void read_numbers(const char *words, uint32_t *numbers, size_t count)
{
    char *rest = NULL;
    for (size_t i = 0; i < count; ++i) {
        numbers[i] = (uint32_t)strtoul(words, &rest, 0);
        words = *rest == ':' ? rest + 1 : rest;
    }
}

static void set_ram(const char *words)
{
    uint32_t numbers[3] = {0};
    read_numbers(words, numbers, 3);
    ram.from = numbers[0];
    ram.bytes = numbers[1];
    ram.waits = numbers[2];
}

static void set_flash(const char *words)
{
    uint32_t numbers[9] = {0};
    read_numbers(words, numbers, 9);
    flash.from = numbers[0];
    flash.bytes = numbers[1];
    flash.waits = numbers[2];
    flash.line_bytes = numbers[3] != 0 ? numbers[3] : 4u;
    set_cache(&flash.instructions, numbers[4], numbers[6]);
    set_cache(&flash.data, numbers[5], numbers[6]);
    flash.of_data = numbers[7] != 0 ? &flash.instructions : &flash.data;
    flash.prefetches = numbers[8];
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **arguments)
{
    const char *path = NULL;
    uint32_t steps = 0;
    (void)info;
    state.skips_until = NO_ADDRESS;
    for (int i = 0; i < count; ++i) {
        if (strncmp(arguments[i], "from=", 5) == 0) {
            state.from = (uint32_t)strtoul(arguments[i] + 5, NULL, 0);
        } else if (strncmp(arguments[i], "bytes=", 6) == 0) {
            state.bytes = (uint32_t)strtoul(arguments[i] + 6, NULL, 0);
        } else if (strncmp(arguments[i], "out=", 4) == 0) {
            path = arguments[i] + 4;
        } else if (strncmp(arguments[i], "steps=", 6) == 0) {
            steps = (uint32_t)strtoul(arguments[i] + 6, NULL, 0);
        } else if (strncmp(arguments[i], "watch=", 6) == 0) {
            watch(arguments[i] + 6);
        } else if (strncmp(arguments[i], "skip=", 5) == 0) {
            skip(arguments[i] + 5);
        } else if (strncmp(arguments[i], "flash=", 6) == 0) {
            set_flash(arguments[i] + 6);
        } else if (strncmp(arguments[i], "ram=", 4) == 0) {
            set_ram(arguments[i] + 4);
        }
    }
    if (path == NULL || state.bytes == 0 || map_file(path, steps) != 0) {
        return -1;
    }
    state.last = &state.nobody;
    state.header->magic = MAGIC;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
