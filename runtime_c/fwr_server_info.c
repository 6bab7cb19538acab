/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server_info.c: describes the model and the board. See fwr_server_internal.h. */
#include <string.h>

#include "fwr.h"
#include "fwr_link.h"
#include "fwr_server.h"
#include "fwr_server_internal.h"
#include "fwr_stack.h"
#include "port/fwr_port.h"

int32_t fwr_server_do_hello(uint8_t *data)
{
    const struct fwr_model *model = fwr_server.model;
    const struct fwr_port_info *port = fwr_port_info();
    const uint32_t counts[] = {
        FWR_LINK_PAYLOAD_MAX, model->flags,          model->input_count,
        model->output_count,  model->operator_count, FWR_PROFILE,
    };
    const uint32_t sizes[] = {
        model->params ? model->params_size_bytes : 0,
        port->counter_scale_num,
        port->counter_scale_den,
        fwr_server.run_cost,
        port->stack_low ? (uint32_t)((uintptr_t)port->stack_high - (uintptr_t)port->stack_low) : 0,
    };
    fwr_link_put(&data[0], FWR_LINK_VERSION, 2);
    fwr_link_put(&data[2], FWR_ABI, 2);
    memcpy(&data[4], model->id, 16);
    fwr_link_put_all(&data[20], counts, 6, 2);
    fwr_link_put_all(&data[32], sizes, 5, 4);
    fwr_link_put(&data[52], port->receive_bytes, 2);
    fwr_link_put(&data[54], (uint32_t)(uintptr_t)model->params, 4);
    return 58;
}

const struct fwr_tensor *fwr_server_find_tensor(uint32_t is_output, uint32_t index)
{
    const struct fwr_model *model = fwr_server.model;
    if (is_output > 1 || index >= (is_output ? model->output_count : model->input_count)) {
        return 0;
    }
    return is_output ? &model->outputs[index] : &model->inputs[index];
}

static const char *find_text(uint32_t which, uint32_t index)
{
    const struct fwr_port_info *port = fwr_port_info();
    switch (which) {
    case 0:
        return fwr_server.model->name;
    case 1:
        return port->board;
    case 2:
        return port->text;
    case 3:
        return port->counter_unit;
    default: {
        const struct fwr_tensor *tensor = fwr_server_find_tensor(which - 4u, index);
        return tensor ? tensor->name : 0;
    }
    }
}

int32_t fwr_server_do_text(uint8_t *data)
{
    const char *text = find_text(data[0], fwr_link_get(&data[1], 2));
    uint32_t offset = fwr_link_get(&data[3], 2);
    uint32_t part = fwr_link_get(&data[5], 2);
    if (!text || part + 2u > FWR_LINK_PAYLOAD_MAX) {
        return FWR_E_RANGE;
    }
    uint32_t total = (uint32_t)strlen(text);
    if (offset > total) {
        return FWR_E_RANGE;
    }
    if (part > total - offset) {
        part = total - offset;
    }
    fwr_link_put(data, total, 2);
    memcpy(&data[2], &text[offset], part);
    return (int32_t)(2u + part);
}

/* Returns where a debugger can access the tensor, or 0 if only the server can. */
static uint32_t debug_address(const struct fwr_tensor *tensor, bool is_output)
{
#if FWR_PRIVATE_IO
    if (tensor->is_private) {
        return 0;
    }
#endif
    return fwr_server.model->feed && !is_output ? 0 : (uint32_t)(uintptr_t)tensor->data;
}

int32_t fwr_server_do_tensor(uint8_t *data)
{
    bool is_output = data[0] != 0;
    const struct fwr_tensor *tensor = fwr_server_find_tensor(data[0], fwr_link_get(&data[1], 2));
    if (!tensor) {
        return FWR_E_RANGE;
    }
    data[0] = tensor->dtype;
    fwr_link_put(&data[1], tensor->size_bytes, 4);
    fwr_link_put(&data[5], debug_address(tensor, is_output), 4);
    return 9;
}

uint32_t fwr_server_stack_used(void)
{
    const struct fwr_port_info *port = fwr_port_info();
    return port->stack_low ? fwr_stack_used(port->stack_low, port->stack_high) : 0;
}

int32_t fwr_server_do_stack(uint8_t *data)
{
    if (!fwr_port_info()->stack_low) {
        return FWR_E_UNSUPPORTED;
    }
    fwr_link_put(data, fwr_server_stack_used(), 4);
    return 4;
}

#if FWR_PROFILE
int32_t fwr_server_do_identity(uint8_t *data)
{
    uint32_t words[FWR_IDENTITY_WORDS_MAX];
    uint32_t count = fwr_port_identity(words);
    FWR_ASSERT(count <= FWR_IDENTITY_WORDS_MAX);
    if (count == 0) {
        return FWR_E_UNSUPPORTED;
    }
    fwr_link_put_all(data, words, count, 4);
    return (int32_t)(4u * count);
}
#endif
