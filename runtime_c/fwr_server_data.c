/* SPDX-License-Identifier: Apache-2.0 */
/* fwr_server_data.c: transfers inputs, the parameter block and outputs. See fwr_server_internal.h.
 */
#include <string.h>

#include "fwr.h"
#include "fwr_link.h"
#include "fwr_probe.h"
#include "fwr_server_internal.h"
#include "port/fwr_port.h"

/* ---- Inputs ---------------------------------------------------------------------------------- */

/* Advances the write position past completed inputs. */
static void pass_full_inputs(void)
{
    const struct fwr_model *model = fwr_server.model;
    while (fwr_server.input_index < model->input_count &&
           fwr_server.input_offset >= model->inputs[fwr_server.input_index].size_bytes) {
        fwr_server.input_index++;
        fwr_server.input_offset = 0;
    }
    FWR_ASSERT(fwr_server.input_index <= model->input_count);
}

void fwr_server_invalidate_inputs(void)
{
    fwr_server.input_index = 0;
    fwr_server.input_offset = 0;
    pass_full_inputs();
}

static int32_t feed_row(uint32_t row)
{
    fwr_port_counter_align();
    uint64_t begin = fwr_port_counter();
    int32_t result = fwr_server.model->feed(row);
    fwr_server.feed_ticks += fwr_server_net_ticks(fwr_port_counter() - begin);
    return result;
}

/* Returns whether a write continues the bytes before it. One without bytes reports that a debugger
 * has written all bytes up to its end. */
static bool follows(uint32_t offset, uint32_t size, uint32_t written)
{
    return (size == 0 || offset <= written) && offset + size > written;
}

static int32_t write_tensor(const struct fwr_tensor *tensor, uint32_t offset, const uint8_t *from,
                            uint32_t size)
{
    FWR_ASSERT(fwr_server_is_in_range(offset, size, tensor->size_bytes));
    uint8_t *to = (uint8_t *)tensor->data + offset;
#if FWR_PRIVATE_IO
    if (tensor->is_private) {
        return fwr_port_pool_write(to, from, size);
    }
#endif
    memcpy(to, from, size);
    return FWR_OK;
}

static int32_t read_tensor(const struct fwr_tensor *tensor, uint32_t offset, uint8_t *to,
                           uint32_t size)
{
    FWR_ASSERT(fwr_server_is_in_range(offset, size, tensor->size_bytes));
    const uint8_t *from = (const uint8_t *)tensor->data + offset;
#if FWR_PRIVATE_IO
    if (tensor->is_private) {
        return fwr_port_pool_read(to, from, size);
    }
#endif
    memcpy(to, from, size);
    return FWR_OK;
}

/* Feeds row-streamed input bytes, in order. Offset 0 begins a new input. Bytes received before are
 * skipped; they belong to a repeated request, whole or in smaller pieces. */
static enum fwr_status feed_input(uint32_t offset, const uint8_t *data, uint32_t size)
{
    const struct fwr_model *model = fwr_server.model;
    if (offset == 0) {
        fwr_server.input_index = 0;
        fwr_server.input_offset = 0;
        fwr_server.feed_ticks = 0;
        fwr_server.output_valid = false;
        fwr_probe_start(model, 1);
    }
    uint32_t reached =
        fwr_server.input_index == 0 ? fwr_server.input_offset : model->inputs[0].size_bytes;
    if (offset > reached) {
        return FWR_E_RANGE;
    }
    uint32_t known = reached - offset < size ? reached - offset : size;
    data += known;
    size -= known;
    while (size > 0) {
        uint32_t at = fwr_server.input_offset % model->row_size_bytes;
        uint32_t part = model->row_size_bytes - at < size ? model->row_size_bytes - at : size;
        FWR_ASSERT(part > 0 && at + part <= model->row_size_bytes);
        memcpy((uint8_t *)model->row + at, data, part);
        fwr_server.input_offset += part;
        data += part;
        size -= part;
        if (at + part == model->row_size_bytes &&
            feed_row(fwr_server.input_offset / model->row_size_bytes - 1u) != 0) {
            fwr_server_invalidate_inputs();
            return FWR_E_RUN;
        }
    }
    pass_full_inputs();
    return FWR_OK;
}

int32_t fwr_server_do_write_input(const uint8_t *data)
{
    uint32_t index = fwr_link_get(&data[0], 2);
    uint32_t offset = fwr_link_get(&data[2], 4);
    uint32_t size = fwr_server_request_size() - 6u;
    const struct fwr_tensor *tensor = fwr_server_find_tensor(0, index);
    if (!tensor || !fwr_server_is_in_range(offset, size, tensor->size_bytes)) {
        return FWR_E_RANGE;
    }
    if (fwr_server.model->feed) {
        return feed_input(offset, &data[6], size);
    }
    if (write_tensor(tensor, offset, &data[6], size) != FWR_OK) {
        return FWR_E_IO;
    }
    fwr_server.output_valid = false;
    if (index == fwr_server.input_index && follows(offset, size, fwr_server.input_offset)) {
        fwr_server.input_offset = offset + size;
        pass_full_inputs();
    }
    return FWR_OK;
}

int32_t fwr_server_do_write_params(const uint8_t *data)
{
    const struct fwr_model *model = fwr_server.model;
    if (!model->params) {
        return FWR_E_UNSUPPORTED;
    }
    uint32_t offset = fwr_link_get(&data[0], 4);
    uint32_t size = fwr_server_request_size() - 4u;
    if (!fwr_server_is_in_range(offset, size, model->params_size_bytes)) {
        return FWR_E_RANGE;
    }
    memcpy((uint8_t *)model->params + offset, &data[4], size);
    fwr_server.output_valid = false;
    if (follows(offset, size, fwr_server.params_written)) {
        fwr_server.params_written = offset + size;
    }
    return FWR_OK;
}

int32_t fwr_server_do_read_output(uint8_t *data)
{
    const struct fwr_tensor *tensor = fwr_server_find_tensor(1, fwr_link_get(&data[0], 2));
    uint32_t offset = fwr_link_get(&data[2], 4);
    uint32_t wanted = fwr_link_get(&data[6], 2);
    if (!tensor || wanted > FWR_LINK_PAYLOAD_MAX ||
        !fwr_server_is_in_range(offset, wanted, tensor->size_bytes)) {
        return FWR_E_RANGE;
    }
    if (!fwr_server.output_valid) {
        return FWR_E_NO_OUTPUT;
    }
    if (read_tensor(tensor, offset, data, wanted) != FWR_OK) {
        return FWR_E_IO;
    }
    return (int32_t)wanted;
}
