/* Transforms of two neighbouring blocks in a vector of AVX2. */
enum { BLOCKS = 2 };
#define TARGET AVX2
#define IDCT_PAIR(n) idct_pair_##n##_avx2
#include "native.h"

#ifdef HAVE_AVX2
#include <immintrin.h>

#include "idct.h"

#define UNPACK(type, a, b, half, size)                                            \
    ((type)((half) == LOW ? _mm256_unpacklo_epi##size((__m256i)(a), (__m256i)(b)) \
                          : _mm256_unpackhi_epi##size((__m256i)(a), (__m256i)(b))))

AVX2_INLINE Words load_row(const int16_t *block, const int16_t *next)
{
    return (Words)_mm256_set_m128i(_mm_load_si128((const __m128i *)next),
                                   _mm_load_si128((const __m128i *)block));
}

AVX2_INLINE Words interleave(Words a, Words b, Half half)
{
    return UNPACK(Words, a, b, half, 16);
}

AVX2_INLINE Longs interleave_longs(Longs a, Longs b, Half half)
{
    return UNPACK(Longs, a, b, half, 32);
}

AVX2_INLINE Quads interleave_quads(Quads a, Quads b, Half half)
{
    return UNPACK(Quads, a, b, half, 64);
}

AVX2_INLINE Longs dot(Words pairs, int first, int second)
{
    int both = (int)((uint32_t)second << 16 | (uint16_t)first);
    return (Longs)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi32(both));
}

AVX2_INLINE Words narrow(Longs low, Longs high, int shift)
{
    Signed a = (Signed)low >> shift, b = (Signed)high >> shift;
    return (Words)_mm256_packs_epi32((__m256i)a, (__m256i)b);
}

AVX2_INLINE Bytes samples_of_words(Words low, Words high)
{
    return (Bytes)_mm256_packs_epi16((__m256i)low, (__m256i)high) + 128;
}
#endif
