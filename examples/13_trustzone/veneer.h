/* veneer.h: the functions of the secure world that the non-secure world may call. */
#ifndef VENEER_H
#define VENEER_H

#include <stdint.h>

#define VENEER_OK 0
#define VENEER_E_POINTER (-100) /* a buffer is not in non-secure memory */

/* Classifies an image of 64 int8 values; writes ten scores. Both buffers are non-secure. */
int32_t secure_classify(const int8_t *image, int8_t *scores);

#endif
