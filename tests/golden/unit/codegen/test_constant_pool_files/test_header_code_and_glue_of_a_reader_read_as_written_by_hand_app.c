APP_ALIGNED(M_SRAM_ALIGN)
#if FWR_GUARDS
static uint8_t guarded_sram[FWR_GUARD_BYTES + M_SRAM_SIZE + FWR_GUARD_BYTES];
#define pool_sram (guarded_sram + FWR_GUARD_BYTES)
#else
static uint8_t pool_sram[M_SRAM_SIZE];
#endif

static int32_t start_reading(void *context, uint32_t offset, void *dst, uint32_t size)
{
    (void)context;
    return fwr_port_read_start(offset, dst, size);
}

static int32_t wait_for_reading(void *context)
{
    (void)context;
    return fwr_port_read_wait();
}

static const struct m_workspace_pools pools = {
    .sram = pool_sram,
    .far = {start_reading, wait_for_reading, NULL},
#ifdef M_CHECK_SIZES
    .sram_size = M_SRAM_SIZE,
#endif
};

