"""The edits of sources of which each must make tests fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of `old`, once in the file, by `new`; `tests` must detect it."""

    kind: str
    file: str
    old: str
    new: str
    tests: str


FRAMES = "tests/runtime/test_runtime_files.py"
LINES = "tests/runtime/test_bad_lines.py -k 'perfect_line or every_session or long_ago'"
PROTOCOL = "tests/unit/device/test_link_protocol.py " + FRAMES
COMPARE = "tests/unit/oracle/test_compare.py"
VALIDATE = "tests/unit/usmp/test_plan_validator.py tests/unit/usmp/test_pitfalls.py"
VERIFY = "tests/test_filetests.py tests/unit/ir/test_async_calls.py tests/unit/ir/test_verify.py"
TUNING = (
    "tests/unit/ops/test_tuning_records.py tests/unit/lower/test_layer_measurements.py"
)
STACK = "tests/unit/build/test_stack_analysis.py"
C_LINK = "runtime_c/fwr_link.c"
C_DATA = "runtime_c/fwr_server_data.c"
C_FRAMES = "runtime_c/fwr_server_frames.c"
C_RUN = "runtime_c/fwr_server_run.c"
STATE = "tests/state/test_variables.py"
SPANS = "tests/unit/passes/test_devices_and_spans.py tests/unit/passes/test_multi_core_split.py"
PY = "toolchain/firmwright/"

EDITS = (
    # ---- the link, in C --------------------------------------------------------------
    Edit(
        "frame's checksum skipped",
        C_LINK,
        "        return FWR_LINK_DAMAGED;\n    }\n    return FWR_LINK_FRAME;",
        "        return FWR_LINK_FRAME;\n    }\n    return FWR_LINK_FRAME;",
        FRAMES,
    ),
    Edit("frame's checksum altered", C_LINK, "0x1db71064u", "0x1db71065u", FRAMES),
    Edit("frame's checksum altered", C_LINK, "return ~crc;", "return crc;", FRAMES),
    Edit("frame's checksum altered", C_LINK, "crc = ~crc;", "crc = 0;", FRAMES),
    Edit(
        "wire length off by one",
        C_LINK,
        "uint32_t end = length + FWR_LINK_CRC;",
        "uint32_t end = length + FWR_LINK_CRC - 1u;",
        FRAMES,
    ),
    Edit(
        "wire length off by one",
        C_LINK,
        "link->length < FWR_LINK_FRAME_MAX",
        "link->length < FWR_LINK_FRAME_MAX - 1u",
        FRAMES,
    ),
    Edit("wire length off by one", C_LINK, "run < 254u &&", "run < 253u &&", FRAMES),
    Edit(
        "wire length off by one",
        C_LINK,
        "link->owes_zero = byte != 0xffu;",
        "link->owes_zero = true;",
        FRAMES,
    ),
    Edit(
        "wire length off by one",
        C_DATA,
        "fwr_server_request_size() - 6u",
        "fwr_server_request_size() - 7u",
        LINES,
    ),
    Edit(
        "damage of a frame forgotten", C_LINK, "    link->broken = false;\n", "", FRAMES
    ),
    Edit(
        "damage of a frame forgotten",
        C_LINK,
        "        link->broken = true;\n",
        "",
        FRAMES,
    ),
    Edit(
        "request carried out twice",
        C_FRAMES,
        "return ahead == 0 ? FWR_FRAME_RETRANSMIT : FWR_FRAME_NEXT;",
        "return FWR_FRAME_NEXT;",
        LINES,
    ),
    Edit(
        "request of another session taken",
        C_FRAMES,
        "session != fwr_server.session",
        "session == 0xffffu",
        LINES,
    ),
    Edit(
        "old request taken",
        C_FRAMES,
        "if (ahead >= 0x8000u)",
        "if (ahead >= 0xffffu)",
        LINES,
    ),
    Edit(
        "place in an input off by one",
        C_DATA,
        "        fwr_server.input_offset = offset + size;\n        pass_full_inputs();",
        "        fwr_server.input_offset = offset + size - 1u;\n        pass_full_inputs();",
        LINES,
    ),
    Edit(
        "input not copied",
        C_DATA,
        "write_tensor(tensor, offset, &data[6], size)",
        "write_tensor(tensor, offset, &data[6], 0u * size)",
        LINES,
    ),
    Edit(
        "output read at its beginning always",
        C_DATA,
        "const uint8_t *from = (const uint8_t *)tensor->data + offset;",
        "const uint8_t *from = (const uint8_t *)tensor->data + 0u * offset;",
        LINES,
    ),
    Edit(
        "stale output given away",
        C_RUN,
        "fwr_server.output_valid = !fwr_server.interrupted &&",
        "fwr_server.output_valid = 1 || fwr_server.interrupted ||",
        "tests/unit/device/test_session.py",
    ),
    # ---- the link, in Python ---------------------------------------------------------
    Edit(
        "frame's checksum skipped",
        PY + "device/link_protocol.py",
        "if zlib.crc32(content) != crc:",
        "if False:",
        PROTOCOL,
    ),
    Edit(
        "frame's checksum altered",
        PY + "device/link_protocol.py",
        "if zlib.crc32(content) != crc:",
        "if (zlib.crc32(content) ^ crc) & 0xFFFF:",
        PROTOCOL,
    ),
    Edit(
        "wire length off by one",
        PY + "device/link_protocol.py",
        "if last and last % 254 == 0:",
        "if last and last % 255 == 0:",
        PROTOCOL,
    ),
    Edit(
        "wire length off by one",
        PY + "device/link_protocol.py",
        "len(block) != code - 1",
        "len(block) > code - 1",
        PROTOCOL,
    ),
    # ---- the judges ------------------------------------------------------------------
    Edit(
        "outputs compared with themselves",
        PY + "flows/verify/verification.py",
        "compare_with_proof(imported, batch.samples, outputs, actual)",
        "compare_with_proof(imported, batch.samples, actual, actual)",
        "tests/unit/flows/test_verification.py -k first_operator",
    ),
    Edit(
        "comparison blind to integers",
        PY + "oracle/compare.py",
        "wrong, proved = expected != actual, 0",
        "wrong, proved = errors > 1, 0",
        COMPARE,
    ),
    Edit(
        "comparison blind to signs",
        PY + "oracle/compare.py",
        "errors = np.abs(actual.astype(wide) - expected.astype(wide))\n",
        "errors = np.abs(np.abs(actual.astype(wide)) - np.abs(expected.astype(wide)))\n",
        COMPARE,
    ),
    Edit(
        "comparison lets NaN pass",
        PY + "oracle/compare.py",
        "~same & ~(errors <= bound)",
        "~same & (errors > bound)",
        COMPARE,
    ),
    Edit(
        "comparison counts one sample",
        PY + "oracle/compare.py",
        "        mismatches += part.mismatches\n",
        "        mismatches = part.mismatches\n",
        COMPARE,
    ),
    Edit(
        "validator without alignment",
        PY + "usmp/plan_validator.py",
        "place.offset < 0 or place.offset % buffer.alignment != 0",
        "place.offset < 0",
        VALIDATE,
    ),
    Edit(
        "validator without limits",
        PY + "usmp/plan_validator.py",
        "if limit is not None and end > limit:",
        "if False:",
        VALIDATE,
    ),
    Edit(
        "validator without conflicts",
        PY + "usmp/plan_validator.py",
        "if is_inside and not is_on_period:",
        "if False:",
        VALIDATE,
    ),
    Edit(
        "validator without pairs",
        PY + "usmp/plan_validator.py",
        "if a_place.pool == b_place.pool and share_offsets:",
        "if False:",
        VALIDATE,
    ),
    Edit(
        "validator without figures",
        PY + "usmp/plan_validator.py",
        "if dict(plan.pool_bytes) != highest:",
        "if False:",
        VALIDATE,
    ),
    Edit(
        "validator off by one",
        PY + "usmp/plan_validator.py",
        "conflict.lo < difference < conflict.hi",
        "conflict.lo < difference < conflict.hi - 1",
        VALIDATE,
    ),
    Edit(
        "validator takes any pool",
        PY + "usmp/plan_validator.py",
        "place.pool not in buffer.pools or place.pool not in pools",
        "place.pool not in pools",
        VALIDATE,
    ),
    Edit(
        "verifier blind to devices",
        PY + "ir/tir/verify_async_calls.py",
        "        self._check_conflicts(effects, others, _format_call(call))\n",
        "",
        VERIFY,
    ),
    Edit(
        "verifier blind to devices",
        PY + "ir/tir/verify_async_calls.py",
        '        verifier.report(f"{_format_call(call)} is started but never awaited")\n',
        "        pass\n",
        VERIFY,
    ),
    Edit(
        "verifier blind to devices",
        PY + "ir/tir/verify_async_calls.py",
        "if (call in one) != (call in other):",
        "if False:",
        VERIFY,
    ),
    Edit(
        "verifier without plans",
        PY + "ir/tir/verify_plan.py",
        "        elif a.pool == b.pool and not conflict.allows(a.offset, b.offset):",
        "        elif False:",
        VERIFY,
    ),
    Edit(
        "verifier without plans",
        PY + "ir/tir/verify_plan.py",
        "if _overlaps_in_memory(plan, buffer, other) and names not in related:",
        "if False:",
        VERIFY,
    ),
    Edit(
        "verifier without plans",
        PY + "ir/tir/verify_plan.py",
        "if Placement(pool, offset.value) not in expected:",
        "if False:",
        VERIFY,
    ),
    Edit(
        "verifier without plans",
        PY + "ir/tir/verify_plan.py",
        "if pool in tops and size > tops[pool]:",
        "if False:",
        VERIFY,
    ),
    # ---- stack, tuning, passes -------------------------------------------------------
    Edit(
        "stack estimate too low",
        PY + "build/stack_analysis.py",
        "frame + deepest.size_bytes",
        "deepest.size_bytes",
        STACK,
    ),
    Edit(
        "stack estimate too low",
        PY + "build/stack_analysis.py",
        "deepest = max(deepest, self._depth(callee, (*above, start)))",
        "deepest = self._depth(callee, (*above, start))",
        STACK,
    ),
    Edit(
        "stack estimate too low",
        PY + "build/call_sites.py",
        "int(span[3]) - int(span[2]) + 1",
        "int(span[3]) - int(span[2])",
        STACK,
    ),
    Edit(
        "stack estimate too low",
        PY + "build/stack_analysis.py",
        "frames[name] = max(frames.get(name, 0), int(size))",
        "frames[name] = int(size)",
        STACK,
    ),
    Edit(
        "tuning of another structure applied",
        PY + "lower/layer_measurements.py",
        "if measurement.kernel == kernel]",
        "]",
        TUNING,
    ),
    Edit(
        "tuning of another structure applied",
        PY + "ops/tuning_records.py",
        '        "inputs": inputs,\n',
        '        "inputs": [],\n',
        TUNING,
    ),
    Edit(
        "tuning of another structure applied",
        PY + "ops/tuning_records.py",
        '        "target": str(target),\n',
        "",
        TUNING,
    ),
    Edit(
        "tuning of another structure applied",
        PY + "ops/tuning_records.py",
        '"numerics": call.numerics,\n',
        "\n",
        TUNING,
    ),
    # ---- what is kept, where constants lie, spans ------------------------------------
    Edit(
        "state not committed",
        PY + "choose/aot_main.py",
        "            if state_buffer != source:\n",
        "            if False:\n",
        STATE,
    ),
    Edit(
        "state not reset",
        PY + "codegen/templates/model.c.j2",
        "kept.fill, kept.io",
        "kept.fill + 1, kept.io",
        STATE,
    ),
    Edit(
        "state not reset",
        PY + "codegen/templates/model.c.j2",
        '{{ c_line("memcpy(%s, %s_initial_%s, sizeof %s_initial_%s);" % (at, name, kept.field, '
        "name, kept.field)) }}\n",
        "",
        STATE,
    ),
    Edit(
        "address of a file in memory wrong",
        PY + "flows/board/model_session.py",
        "0 if region is None else region.start)",
        "0 if region is None else region.start + 16)",
        "tests/acceptance/test_constant_pools.py -k digits_is_bit_exact",
    ),
    Edit(
        "pass drops a span",
        PY + "ops/call_slices.py",
        "(part,), attrs, span)",
        "(part,), attrs)",
        SPANS,
    ),
    Edit(
        "pass drops a span",
        PY + "passes/map_functions.py",
        "    return _map_functions(module, Function, changed)\n",
        "    return _map_functions(module, Function, lambda func: replace(f := change(func), "
        "body=tuple(replace(c, span=type(c.span)('')) for c in f.body)))\n",
        SPANS,
    ),
    Edit(
        "pass changes a device",
        PY + "passes/map_functions.py",
        "    return _map_functions(module, Function, changed)\n",
        "    return _map_functions(module, Function, lambda func: replace(f := change(func), "
        "body=tuple(replace(c, outputs=tuple(replace(v, virtual_device=type(v.virtual_device)"
        "('cpu9')) for v in c.outputs)) for c in f.body)))\n",
        SPANS,
    ),
)
