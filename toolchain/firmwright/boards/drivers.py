"""The drivers of each port, in its folder: `console_NAME.c`, `counter_NAME.c`, `boot_NAME.c`."""

from __future__ import annotations

from typing import Final

CONSOLES: Final = {
    "host": ("stdio",),
    "cortex_m": (
        "cmsdk_uart",
        "nrf51_uart",
        "rp2_uart",
        "rtt",
        "stm32_usart",
        "stm32f1_usart",
    ),
    "riscv32": ("ns16550", "sifive_uart"),
}
COUNTERS: Final = {
    "host": ("clock",),
    "cortex_m": ("systick", "nrf51_timer"),
    "riscv32": ("minstret",),
}
BOOTS: Final[dict[str, tuple[str, ...]]] = {
    "host": (),
    "cortex_m": ("rp2040", "rp2350"),
    "riscv32": (),
}
