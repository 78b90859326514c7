/* Inverse DCTs (T.81, A.3.3): libjpeg-turbo's accurate integer ones, to n x n samples a block.
 *
 * jidctint.c and jidctred.c have the algorithm (Loeffler, Ligtenberg and Moschytz). Repeated here,
 * to the bit, is their vector code, which keeps 16 bits between its steps: products with the
 * quantizer wrap around, so do sums of two inputs, and what the first pass leaves is saturated. So
 * the samples are libjpeg-turbo's for any coefficients, also those that no image has: there is
 * no range to check.
 *
 * idct_lanes.h has the transforms, for vectors of one block and, with AVX2, of two: words of eight
 * columns, or longs of four. They are unsigned, since those wrap around.
 */
#include "native.h"

#include <string.h>

enum { CONST_BITS = 13, PASS1_BITS = 2 };
#define FIX(x) ((int)((x) * (1 << CONST_BITS) + 0.5))

#ifdef __aarch64__
enum { CUTS_OFF = 1 }; /* what saturates elsewhere is cut off by libjpeg-turbo's code for NEON */
#else
enum { CUTS_OFF = 0 };
#endif

typedef enum { LOW, HIGH } Half; /* of a vector, or of the half of it that is a block's */

#define VECTORS(n)                                                  \
    typedef uint8_t Bytes_##n __attribute__((vector_size(16 * n)));  \
    typedef uint16_t Words_##n __attribute__((vector_size(16 * n))); \
    typedef uint32_t Longs_##n __attribute__((vector_size(16 * n))); \
    typedef uint64_t Quads_##n __attribute__((vector_size(16 * n))); \
    typedef int32_t Signed_##n __attribute__((vector_size(16 * n)))
VECTORS(1);
VECTORS(2);
typedef int16_t SignedWords __attribute__((vector_size(16)));

#define LANES(name) name##_1
#define IDCT(n) idct_##n
#define TARGET
#define BLOCKS 1

INLINE Words_1 row_1(const int16_t *block, const int16_t *next)
{
    Words_1 row;
    (void)next;
    memcpy(&row, block, sizeof row);
    return row;
}

INLINE Words_1 interleave_1(Words_1 a, Words_1 b, Half half)
{
    return half == LOW ? SHUFFLE(Words_1, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
                       : SHUFFLE(Words_1, a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

INLINE Longs_1 interleave_longs_1(Longs_1 a, Longs_1 b, Half half)
{
    return half == LOW ? SHUFFLE(Longs_1, a, b, 0, 4, 1, 5) : SHUFFLE(Longs_1, a, b, 2, 6, 3, 7);
}

INLINE Quads_1 interleave_quads_1(Quads_1 a, Quads_1 b, Half half)
{
    return half == LOW ? SHUFFLE(Quads_1, a, b, 0, 2) : SHUFFLE(Quads_1, a, b, 1, 3);
}

/* Of each pair of words: first * its first + second * its second. */
INLINE Longs_1 dot_1(Words_1 pairs, int first, int second)
{
    Signed_1 x = (Signed_1)pairs;
    return (Longs_1)((x << 16 >> 16) * first + (x >> 16) * second);
}

INLINE Signed_1 saturated(Longs_1 x, int shift)
{
    Signed_1 value = (Signed_1)x >> shift;
    if (CUTS_OFF)
        return value;
    Signed_1 over = value > INT16_MAX, under = value < INT16_MIN;
    return (value & ~(over | under)) | (over & INT16_MAX) | (under & INT16_MIN);
}

INLINE Words_1 narrow_1(Longs_1 low, Longs_1 high, int shift)
{
    Words_1 a = (Words_1)saturated(low, shift), b = (Words_1)saturated(high, shift);
    return SHUFFLE(Words_1, a, b, 0, 2, 4, 6, 8, 10, 12, 14);
}

INLINE Bytes_1 samples_1(Words_1 low, Words_1 high)
{
    SignedWords x[2] = {(SignedWords)low, (SignedWords)high};
    for (int i = 0; i < 2; i++) {
        SignedWords over = x[i] > 127, under = x[i] < -128;
        x[i] = ((x[i] & ~(over | under)) | (over & 127) | (under & -128)) + 128;
    }
    return SHUFFLE(Bytes_1, (Bytes_1)x[0], (Bytes_1)x[1], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                   24, 26, 28, 30);
}

#include "idct_lanes.h"

#define PAIR(n)                                                                               \
    void idct_pair_##n(int16_t *coefficients, const int16_t *quant, uint8_t *out,             \
                       ptrdiff_t stride)                                                      \
    {                                                                                         \
        idct_##n(coefficients, quant, out, stride);                                           \
        idct_##n(coefficients + 64, quant, out + n, stride);                                  \
    }
PAIR(2)
PAIR(4)
PAIR(8)

#ifdef HAVE_AVX2
#include <immintrin.h>

#undef LANES
#undef IDCT
#undef TARGET
#undef BLOCKS
#define LANES(name) name##_2
#define IDCT(n) idct_pair_##n##_avx2
#define TARGET AVX2
#define BLOCKS 2
#define UNPACK(type, a, b, half, size)                                            \
    ((type)((half) == LOW ? _mm256_unpacklo_epi##size((__m256i)(a), (__m256i)(b)) \
                          : _mm256_unpackhi_epi##size((__m256i)(a), (__m256i)(b))))

AVX2_INLINE Words_2 row_2(const int16_t *block, const int16_t *next)
{
    return (Words_2)_mm256_set_m128i(_mm_load_si128((const __m128i *)next),
                                     _mm_load_si128((const __m128i *)block));
}

AVX2_INLINE Words_2 interleave_2(Words_2 a, Words_2 b, Half half)
{
    return UNPACK(Words_2, a, b, half, 16);
}

AVX2_INLINE Longs_2 interleave_longs_2(Longs_2 a, Longs_2 b, Half half)
{
    return UNPACK(Longs_2, a, b, half, 32);
}

AVX2_INLINE Quads_2 interleave_quads_2(Quads_2 a, Quads_2 b, Half half)
{
    return UNPACK(Quads_2, a, b, half, 64);
}

AVX2_INLINE Longs_2 dot_2(Words_2 pairs, int first, int second)
{
    int both = (int)((uint32_t)second << 16 | (uint16_t)first);
    return (Longs_2)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi32(both));
}

AVX2_INLINE Words_2 narrow_2(Longs_2 low, Longs_2 high, int shift)
{
    Signed_2 a = (Signed_2)low >> shift, b = (Signed_2)high >> shift;
    return (Words_2)_mm256_packs_epi32((__m256i)a, (__m256i)b);
}

AVX2_INLINE Bytes_2 samples_2(Words_2 low, Words_2 high)
{
    return (Bytes_2)_mm256_packs_epi16((__m256i)low, (__m256i)high) + 128;
}

#include "idct_lanes.h"
#endif
