# Firmwright with its compilers, emulators and reference runtimes.
#
#   docker build -t firmwright .
#   docker run --rm -v "$PWD:/work" firmwright verify model.tflite --board mps2-an386
FROM debian:12-slim

# The versions are those of the Debian release, which are tested.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        python3 python3-venv gcc libc6-dev \
        gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm \
        gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc \
        gcc-xtensa-lx106 picolibc-xtensa-lx106-elf \
    && rm -rf /var/lib/apt/lists/*

COPY pyproject.toml README.md LICENSE /src/
COPY toolchain /src/toolchain
COPY runtime_c /src/runtime_c
COPY boards /src/boards
COPY benchmarks /src/benchmarks
COPY examples/01_digits /src/examples/01_digits
RUN python3 -m venv /opt/firmwright \
    && /opt/firmwright/bin/pip install --no-cache-dir "/src[verify,mcp]" \
    && useradd --create-home --uid 1000 user

USER 1000
WORKDIR /work
ENTRYPOINT ["/opt/firmwright/bin/firmwright"]
