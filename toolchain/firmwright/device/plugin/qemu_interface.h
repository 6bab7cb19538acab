/* qemu_interface.h: what plugins use of QEMU's plugin interface; distributions ship no header.
 *
 * The functions are the same in its versions 1 (Debian 12's QEMU 7.2) to 5. Each QEMU supports a
 * range of versions, so a plugin declares one that the QEMU which loads it supports.
 */
#ifndef FWR_QEMU_INTERFACE_H
#define FWR_QEMU_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t qemu_plugin_id_t;
typedef void translated_fn(qemu_plugin_id_t id, struct qemu_plugin_tb *block);
typedef uint32_t qemu_plugin_meminfo_t;
typedef void executed_fn(unsigned int cpu, void *data);
typedef void accessed_fn(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address,
                         void *data);
enum { CALLBACK_WITHOUT_REGISTERS = 0, READS_AND_WRITES = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translated_fn *callback);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed_fn *callback,
                                            int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, accessed_fn *callback,
                                      int flags, int accesses, void *data);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
_Bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **arguments);

/* Functions that versions 2, 4 and 5 added: null in an older QEMU, and never called. */
__attribute__((weak)) void qemu_plugin_num_vcpus(void);
__attribute__((weak)) void qemu_plugin_read_memory_vaddr(void);
__attribute__((weak)) void qemu_plugin_write_memory_vaddr(void);

EXPORTED int qemu_plugin_version = 1;

/* Runs when the plugin is loaded, before QEMU reads the version. Version 3 added no function; QEMU
 * 9.1, which has it, supports version 2 as well. */
__attribute__((constructor)) static void declare_version(void)
{
    if (qemu_plugin_write_memory_vaddr != NULL) {
        qemu_plugin_version = 5;
    } else if (qemu_plugin_read_memory_vaddr != NULL) {
        qemu_plugin_version = 4;
    } else if (qemu_plugin_num_vcpus != NULL) {
        qemu_plugin_version = 2;
    }
}

#endif
