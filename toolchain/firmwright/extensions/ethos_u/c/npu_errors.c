/* SPDX-License-Identifier: Apache-2.0 */
/* npu_errors.c: names of commands and texts of errors; see npu.h. */
#include "npu.h"

#define NPU_NAME_CASE(name, code) \
    case code: \
        return #name;

const char *npu_command_name(uint32_t command)
{
    if ((command & 0xc000u) == 0) {
        switch (command & 0x3ffu) {
            NPU_COMMANDS(NPU_NAME_CASE)
        }
    } else if ((command & 0xc000u) == 0x4000u) {
        switch (command & 0x3ffu) {
            NPU_PAYLOAD_COMMANDS(NPU_NAME_CASE)
        }
    }
    return NULL;
}

static size_t append(char *text, size_t used, const char *more)
{
    while (*more != 0 && used + 1 < NPU_ERROR_BYTES) {
        text[used++] = *more++;
    }
    text[used] = 0;
    return used;
}

static size_t append_number(char *text, size_t used, uint64_t number, unsigned base)
{
    char digits[21];
    size_t first = sizeof digits - 1;
    digits[first] = 0;
    do {
        digits[--first] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    return append(text, used, &digits[first]);
}

static size_t append_command(struct npu *npu)
{
    const char *name = npu_command_name(npu->command);
    size_t used = append(npu->error, 0, "command at byte ");
    used = append_number(npu->error, used, npu->position, 10);
    used = append(npu->error, used, name != NULL ? ", " : ", code 0x");
    used = name != NULL ? append(npu->error, used, name)
                        : append_number(npu->error, used, npu->command & 0xffffu, 16);
    return append(npu->error, used, ": ");
}

bool npu_fail(struct npu *npu, const char *subject)
{
    if (npu->error[0] == 0) {
        size_t used = append_command(npu);
        (void)append(npu->error, used, subject);
    }
    return false;
}

bool npu_fail_number(struct npu *npu, const char *subject, uint64_t number)
{
    if (npu->error[0] == 0) {
        size_t used = append_command(npu);
        used = append(npu->error, used, subject);
        (void)append_number(npu->error, append(npu->error, used, " "), number, 10);
    }
    return false;
}

bool npu_fail_range(struct npu *npu, const char *subject, unsigned region, int64_t first,
                    int64_t end)
{
    char *text = npu->error;
    if (text[0] == 0) {
        size_t used = append(text, append_command(npu), subject);
        used = append(text, used, first < 0 ? " from byte -" : " from byte ");
        used = append_number(text, used, (uint64_t)(first < 0 ? -first : first), 10);
        used = append_number(text, append(text, used, " to "), (uint64_t)end, 10);
        used = append_number(text, append(text, used, ", but region "), region, 10);
        used = append_number(text, append(text, used, " has "), npu->regions[region].size, 10);
        (void)append(text, used, " bytes");
    }
    return false;
}
