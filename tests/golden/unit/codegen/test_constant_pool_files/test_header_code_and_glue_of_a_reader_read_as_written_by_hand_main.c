/* ---- The model ---- */

const uint8_t m_id[16] = {
    0xc1, 0x56, 0x7e, 0xe1, 0xb7, 0xf7, 0x44, 0x74,
    0xbe, 0x17, 0x17, 0x9b, 0xfd, 0x8a, 0xeb, 0xc2,
};

const char m_version[] = "m, firmwright";

int32_t m_map_io(const struct m_workspace_pools *pools, struct m_inputs *in,
                 struct m_outputs *out)
{
    if (in == NULL || out == NULL || pools == NULL || pools->sram == NULL) {
        return M_E_NULL;
    }
    if ((uintptr_t)pools->sram % M_SRAM_ALIGN != 0) {
        return M_E_ALIGN;
    }
#ifdef M_CHECK_SIZES
    if (pools->sram_size < M_SRAM_SIZE) {
        return M_E_SIZE;
    }
#endif
    in->x = (int8_t *)(pools->sram + M_X_OFFSET);
    out->y = (int32_t *)(void *)(pools->sram + M_Y_OFFSET);
    return M_OK;
}

/* The end of m_far.bin. */
static const uint8_t m_far_hash[16] = {
    0x3a, 0x59, 0x45, 0x7f, 0x4a, 0x25, 0x91, 0x17,
    0x60, 0x78, 0xc8, 0x38, 0xab, 0x13, 0xb8, 0x19,
};

static int32_t m_check_constants(const struct m_workspace_pools *pools)
{
    uint8_t found[16];

    if (pools->far.start(pools->far.context, M_FAR_SIZE - 16, found, 16) != 0) {
        return M_E_READ;
    }
    if (pools->far.wait(pools->far.context) != 0) {
        return M_E_READ;
    }
    if (memcmp(found, m_far_hash, 16) != 0) {
        return M_E_CONSTANTS;
    }
    return M_OK;
}

int32_t m_run(const struct m_inputs *in, const struct m_outputs *out,
              const struct m_workspace_pools *pools)
{
    if (in == NULL || out == NULL || pools == NULL || pools->sram == NULL
        || pools->far.start == NULL || pools->far.wait == NULL) {
        return M_E_NULL;
    }
    if ((uintptr_t)pools->sram % M_SRAM_ALIGN != 0) {
        return M_E_ALIGN;
    }
#ifdef M_CHECK_SIZES
    if (pools->sram_size < M_SRAM_SIZE) {
        return M_E_SIZE;
    }
#endif
    if ((void *)in->x != pools->sram + M_X_OFFSET || (void *)out->y != pools->sram + M_Y_OFFSET) {
        return M_E_IO;
    }
    const int32_t constants = m_check_constants(pools);
    if (constants != M_OK) {
        return constants;
    }
    uint8_t *sram = pools->sram;
    uint8_t *scale_constants = sram + M_OFFSET_SCALE_CONSTANTS;
    uint8_t *add_constants = sram + M_OFFSET_ADD_CONSTANTS;
    int8_t *x = (int8_t *)(sram + M_OFFSET_X);
    m_i32 *y = (void *)(sram + M_OFFSET_Y);
    m_i32 *a = (void *)(sram + M_OFFSET_A);

    if (pools->far.start(pools->far.context, 0, scale_constants, 20) != 0) {
        return M_E_READ;
    }

    if (pools->far.wait(pools->far.context) != 0) {
        return M_E_READ;
    }

    if (pools->far.start(pools->far.context, 32, add_constants, 16) != 0) {
        return M_E_READ;
    }
    const int8_t *w = (const int8_t *)scale_constants;
    const m_i32 *bias = (const void *)(scale_constants + 4);

    /* 0: scale */
    M_PROBE(0, 0, a, 16);
    m_scale(x, a, w, bias);
    M_PROBE(0, 1, a, 16);

    if (pools->far.wait(pools->far.context) != 0) {
        return M_E_READ;
    }
    const m_i32 *bias_1 = (const void *)add_constants;

    /* 1: add */
    M_PROBE(1, 0, y, 16);
    m_add(a, y, bias_1);
    M_PROBE(1, 1, y, 16);

    return M_OK;
}
