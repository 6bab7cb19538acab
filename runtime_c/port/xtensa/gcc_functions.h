/* SPDX-License-Identifier: Apache-2.0 */
/* gcc_functions.h: functions that gcc calls for arithmetic that the core lacks.
 *
 * All but __udivmoddi4 are weak, in case that a file of libgcc which defines one is linked for
 * another of its functions. Floats are their bits: the call0 ABI passes both in the same registers.
 */
#ifndef FWR_GCC_FUNCTIONS_H
#define FWR_GCC_FUNCTIONS_H

#include <stdint.h>

#include "fwr_port.h"

/* Of libgcc. */
uint64_t __udivmoddi4(uint64_t a, uint64_t b, uint64_t *rest);

FWR_WEAK uint64_t __umulsidi3(uint32_t a, uint32_t b);
FWR_WEAK uint64_t __muldi3(uint64_t a, uint64_t b);
FWR_WEAK uint32_t __udivsi3(uint32_t a, uint32_t b);
FWR_WEAK uint32_t __umodsi3(uint32_t a, uint32_t b);
FWR_WEAK int32_t __divsi3(int32_t a, int32_t b);
FWR_WEAK uint64_t __udivdi3(uint64_t a, uint64_t b);
FWR_WEAK uint64_t __umoddi3(uint64_t a, uint64_t b);
FWR_WEAK int64_t __divdi3(int64_t a, int64_t b);

FWR_WEAK uint32_t __addsf3(uint32_t a, uint32_t b);
FWR_WEAK uint32_t __subsf3(uint32_t a, uint32_t b);
FWR_WEAK uint32_t __mulsf3(uint32_t a, uint32_t b);
FWR_WEAK uint32_t __floatsisf(int32_t a);
FWR_WEAK uint32_t __floatunsisf(uint32_t a);
FWR_WEAK uint32_t __fixunssfsi(uint32_t a);
FWR_WEAK uint32_t __truncdfsf2(uint64_t a);

FWR_WEAK uint64_t __adddf3(uint64_t a, uint64_t b);
FWR_WEAK uint64_t __subdf3(uint64_t a, uint64_t b);
FWR_WEAK uint64_t __muldf3(uint64_t a, uint64_t b);
FWR_WEAK uint64_t __divdf3(uint64_t a, uint64_t b);
FWR_WEAK uint64_t __floatsidf(int32_t a);
FWR_WEAK uint64_t __floatunsidf(uint32_t a);
FWR_WEAK int32_t __fixdfsi(uint64_t a);
FWR_WEAK uint32_t __fixunsdfsi(uint64_t a);
FWR_WEAK uint64_t __extendsfdf2(uint32_t a);

#endif
