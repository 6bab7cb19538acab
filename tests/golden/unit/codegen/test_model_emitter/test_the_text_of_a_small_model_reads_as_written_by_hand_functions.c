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
    in->t_x = (int8_t *)(pools->sram + M_T_X_OFFSET);
    out->t_y = (int8_t *)(pools->sram + M_T_Y_OFFSET);
    return M_OK;
}

int32_t m_run(const struct m_inputs *in, const struct m_outputs *out,
              const struct m_workspace_pools *pools)
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
    if ((void *)in->t_x != pools->sram + M_T_X_OFFSET
        || (void *)out->t_y != pools->sram + M_T_Y_OFFSET) {
        return M_E_IO;
    }
    uint8_t *sram = pools->sram;
    int8_t *t_x = (int8_t *)(sram + M_OFFSET_T_X);
    int8_t *t_y = (int8_t *)(sram + M_OFFSET_T_Y);

    /* 0: fully_connected_0, t/y */
    M_PROBE(0, 0, t_y, 3);
    m_fully_connected_0(t_x, t_y);
    M_PROBE(0, 1, t_y, 3);

    return M_OK;
}
