/* task.h: the stand-in has everything in FreeRTOS.h. */
