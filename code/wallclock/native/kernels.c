/* Which inner loops run. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_AVX2
#include <cpuid.h>
#endif

static Kernels generic = {
    .name = "generic",
    .idct_pair = {[2] = idct_pair_2, [4] = idct_pair_4, [8] = idct_pair_8},
    .inflate = inflate,
    .rgb_of_ycc = rgb_of_ycc,
    .column_sums = column_sums,
    .rgb_of_sums = rgb_of_sums,
    .separate = separate,
    .resize_across = resize_across,
    .resize_down = resize_down,
    .join = join,
    .normalize = normalize,
};

#ifdef HAVE_AVX2
static Kernels of_avx2 = {
    .name = "avx2",
    .idct_pair = {[2] = idct_pair_2_avx2, [4] = idct_pair_4_avx2, [8] = idct_pair_8_avx2},
    .inflate = inflate_avx2,
    .rgb_of_ycc = rgb_of_ycc_avx2,
    .column_sums = column_sums_avx2,
    .rgb_of_sums = rgb_of_sums_avx2,
    .separate = separate_avx2,
    .resize_across = resize_across_avx2,
    .resize_down = resize_down_avx2,
    .join = join_avx2,
    .normalize = normalize_avx2,
};

/* A processor without it takes its code for another instruction. Old compilers cannot ask. */
static bool has_lzcnt(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) && ecx & bit_LZCNT;
}
#endif

const Kernels *kernels = &generic;

void kernels_choose(void)
{
    const char *asked = getenv("WALLCLOCK_KERNELS");
    bool forced = asked && strcmp(asked, "generic") == 0;
    generic.slow = !forced;
    kernels = &generic;
#ifdef HAVE_AVX2
    __builtin_cpu_init();
    if (!forced && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("fma") && has_lzcnt()) {
        /* In these processors pdep is a loop of microcode. */
        of_avx2.bmi2 = !__builtin_cpu_is("amdfam17h") && !__builtin_cpu_is("bdver4");
        kernels = &of_avx2;
    }
#endif
}
