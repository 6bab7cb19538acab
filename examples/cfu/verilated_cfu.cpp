/* SPDX-License-Identifier: Apache-2.0 */
/* verilated_cfu.cpp: executes the instructions on the Verilated module, clock by clock. */
#include <cstdint>

#include "Vcfu.h"
#include "verilated.h"

namespace
{

void tick(Vcfu &cfu)
{
    cfu.clk = 0;
    cfu.eval();
    cfu.clk = 1;
    cfu.eval();
}

Vcfu &powered_up()
{
    static Vcfu *cfu = nullptr;
    if (cfu == nullptr) {
        cfu = new Vcfu;
        cfu->reset = 1;
        tick(*cfu);
        cfu->reset = 0;
        cfu->rsp_ready = 1;
    }
    return *cfu;
}

} // namespace

double sc_time_stamp()
{
    return 0;
}

extern "C" std::uint32_t cfu_execute(std::uint32_t function, std::uint32_t a, std::uint32_t b)
{
    Vcfu &cfu = powered_up();
    cfu.cmd_payload_function_id = static_cast<std::uint16_t>(function);
    cfu.cmd_payload_inputs_0 = a;
    cfu.cmd_payload_inputs_1 = b;
    cfu.cmd_valid = 1;
    do {
        tick(cfu);
        cfu.cmd_valid = 0;
    } while (!cfu.rsp_valid);
    const std::uint32_t result = cfu.rsp_payload_outputs_0;
    tick(cfu);
    return result;
}
