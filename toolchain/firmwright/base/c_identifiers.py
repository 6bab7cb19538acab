"""C identifiers for arbitrary names."""

import re
from collections.abc import Iterable

# C99 guarantees 63 significant characters of a name; some are left for suffixes.
MAX_LENGTH = 56

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if
inline int long register restrict return short signed sizeof static struct switch
typedef union unsigned void volatile while alignas alignof bool constexpr false nullptr
static_assert thread_local true typeof asm and and_eq bitand bitor catch class compl
const_cast delete dynamic_cast explicit export friend mutable namespace new not not_eq
operator or or_eq private protected public reinterpret_cast static_cast template this
throw try typeid typename using virtual wchar_t xor xor_eq
"""
_LIBRARY = """
NULL abs acos asin atan atan2 cbrt ceil cos cosh errno erf exp exp2 expf expm1 fabs
fabsf floor floorf fma fmax fmin fmod frexp hypot isfinite isinf isnan ldexp lgamma log
log10 log1p log2 logf lrint lround main max_align_t memchr memcmp memcpy memmove memset
modf nan nearbyint offsetof pow powf ptrdiff_t remainder rint round roundf signbit sin
sinh size_t sqrt sqrtf strcat strchr strcmp strcpy strlen strncmp strncpy strstr tan
tanh tanhf tgamma trunc gamma j0 j1 jn y0 y1 yn INFINITY NAN HUGE_VAL M_PI index linux
unix arm
"""


_C_HEADERS = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal
stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib
stdnoreturn string tgmath threads time uchar wchar wctype
"""
_POSIX_HEADERS = """
aio cpio devctl dirent dlfcn endian fcntl fmtmsg fnmatch ftw glob grp iconv langinfo
libgen libintl monetary mqueue ndbm netdb nl_types poll pthread pwd regex sched search
semaphore spawn strings stropts syslog tar termios trace ulimit unistd utime utmpx
wordexp
"""
_LIBRARY_HEADERS = """
alloca ansidecl argp argz arm_acle arm_mve arm_neon byteswap elf envz err error execinfo
expat fastmath features fts getopt ieeefp io link malloc mcheck memory mntent newlib
obstack paths picolibc printf process pty reent regdef resolv riscv_vector shadow stab
sysexits termio ttyent ucontext utmp values wait xlocale arduino
"""
_RUNTIME_HEADERS = """
cortex_m cortex_r ethosu_call ethosu_driver firmwright_model gcc_functions gcc_numbers
npu nrf_uarte riscv32 rp2 shared_constants stm32 xtensa
"""


_RESERVED = frozenset((*_KEYWORDS.split(), *_LIBRARY.split()))
_HEADERS = frozenset(
    (
        *_C_HEADERS.split(),
        *_POSIX_HEADERS.split(),
        *_LIBRARY_HEADERS.split(),
        *_RUNTIME_HEADERS.split(),
    )
)
_STDINT = re.compile(
    r"u?int((_least|_fast)?(8|16|32|64)|ptr|max)_t"
    r"|U?INT(_LEAST|_FAST)?(8|16|32|64)_(MIN|MAX)"
    r"|U?INT(8|16|32|64)_C|(SIZE|PTRDIFF)_MAX"
)

_ABI_HASH = re.compile(r"_abi_[0-9a-f]{8}(_sizes)?\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ODD = re.compile(r"[^A-Za-z0-9]+")


def _is_reserved(name: str) -> bool:
    return name in _RESERVED or _STDINT.fullmatch(name) is not None


def is_identifier(name: str) -> bool:
    """Whether generated C can declare `name` unchanged."""
    return _IDENTIFIER.match(name) is not None and not _is_reserved(name)


def without_abi_hash(symbol: str) -> str:
    return _ABI_HASH.sub("", symbol)


def to_c_identifier(name: str) -> str:
    """Return a C identifier close to `name`; `UniqueNamer` tells equal ones apart."""
    plain = _ODD.sub("_", name).strip("_")[:MAX_LENGTH].rstrip("_")
    if not plain:
        return "unnamed"
    if plain[0].isdigit():
        plain = f"n{plain}"
    return f"{plain}_" if _is_reserved(plain) else plain


def to_model_identifier(name: str) -> str:
    """Return a C identifier close to `name` which can also name a model's files.

    The folder of the model's header is an include path in users' builds, so
    that a header `features.h` would hide glibc's, which other headers include. Names
    of headers of C, POSIX, common C libraries and the runtime end in an underscore.
    File systems may ignore case.
    """
    plain = to_c_identifier(name)
    folded = plain.lower()
    is_header = folded in _HEADERS or folded == "fwr" or folded.startswith("fwr_")
    return f"{plain}_" if is_header else plain


class UniqueNamer:
    """A source of identifiers that differ by more than case.

    Some identifiers become upper-case macros.
    """

    __slots__ = ("_next", "_used")

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._used = {name.upper() for name in reserved}
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """Return `to_c_identifier(name)`, with `_1`, `_2`, ... if it is taken."""
        plain = to_c_identifier(name)
        candidate = plain
        count = self._next.get(plain.upper(), 1)
        while candidate.upper() in self._used:
            candidate = f"{plain}_{count}"
            count += 1
        self._next[plain.upper()] = count
        self._used.add(candidate.upper())
        return candidate

    def reserve(self, name: str) -> None:
        self._used.add(name.upper())
