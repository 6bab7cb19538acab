"""A C preprocessor macro that the kernels of Helium share."""

KEEP_STORES = """\
/* gcc before 12.3 takes a predicated store for a store of all lanes, and drops earlier stores to
 * the lanes that it leaves alone (GCC bug 108177), unless something reads them. */
#define KEEP_STORES(to) __asm__ volatile("" : : "m"(*(const int8_t(*)[16])(to)))"""  # noqa: E501
"""A statement that stands before each predicated store of Helium."""
