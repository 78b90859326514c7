/* The inverse DCTs of idct.c, two blocks at a time, one in each half of an AVX2 register: with its
 * products of pairs (vpmaddwd) a block of 8 x 8 takes a fourth of the time. */
#include "native.h"

#ifdef HAVE_AVX2
#include <immintrin.h>
#include <string.h>

enum { CONST_BITS = 13, PASS1_BITS = 2 };
#define FIX(x) ((int)((x) * (1 << CONST_BITS) + 0.5))

typedef int32_t Lanes __attribute__((vector_size(32)));
typedef enum { LOW, HIGH } Half; /* of the eight columns of each block, which 32 bits need */

AVX2_INLINE __m256i interleave(__m256i a, __m256i b, Half half)
{
    return half == LOW ? _mm256_unpacklo_epi16(a, b) : _mm256_unpackhi_epi16(a, b);
}

AVX2_INLINE Lanes dot(__m256i pairs, int first, int second)
{
    int both = (int)((uint32_t)second << 16 | (uint16_t)first);
    return (Lanes)_mm256_madd_epi16(pairs, _mm256_set1_epi32(both));
}

/* x << bits, and half of what `shift` will drop, so that it rounds. */
AVX2_INLINE Lanes widen(__m256i x, Half half, int bits, int shift)
{
    __m256i high = interleave(_mm256_setzero_si256(), x, half);
    return (Lanes)_mm256_srai_epi32(high, 16 - bits) + (1 << (shift - 1));
}

AVX2_INLINE __m256i narrow(Lanes low, Lanes high, int shift)
{
    return _mm256_packs_epi32((__m256i)(low >> shift), (__m256i)(high >> shift));
}

AVX2_INLINE void load_pair(const int16_t *coefficients, const int16_t *quant, __m256i v[8])
{
    for (int k = 0; k < 8; k++) {
        __m128i left = _mm_load_si128((const __m128i *)(coefficients + 8 * k));
        __m128i right = _mm_load_si128((const __m128i *)(coefficients + 64 + 8 * k));
        __m128i row = _mm_load_si128((const __m128i *)(quant + 8 * k));
        v[k] = _mm256_mullo_epi16(_mm256_set_m128i(right, left), _mm256_set_m128i(row, row));
    }
}

/* Whether a block's first row may be so large that libjpeg-turbo's shift of it would not be what
 * the transform makes of it (see `dequantize` in idct.c). */
AVX2_INLINE bool may_overflow(__m256i first)
{
    __m256i shifted = _mm256_srai_epi16(_mm256_slli_epi16(first, PASS1_BITS), PASS1_BITS);
    __m256i changed = _mm256_xor_si256(shifted, first);
    return !_mm256_testz_si256(changed, changed);
}

AVX2_INLINE void clear_pair(int16_t *coefficients)
{
    for (int k = 0; k < 8; k++)
        _mm256_store_si256((__m256i *)coefficients + k, _mm256_setzero_si256());
}

AVX2_INLINE void half_8(const __m256i v[8], Half half, int shift, Lanes out[8])
{
    Lanes t0 = widen(_mm256_add_epi16(v[0], v[4]), half, CONST_BITS, shift);
    Lanes t1 = widen(_mm256_sub_epi16(v[0], v[4]), half, CONST_BITS, shift);
    __m256i x26 = interleave(v[2], v[6], half);
    Lanes t2 = dot(x26, FIX(0.541196100), FIX(0.541196100) - FIX(1.847759065));
    Lanes t3 = dot(x26, FIX(0.541196100) + FIX(0.765366865), FIX(0.541196100));
    Lanes even[4] = {t0 + t3, t1 + t2, t1 - t2, t0 - t3};

    __m256i z34 = interleave(_mm256_add_epi16(v[7], v[3]), _mm256_add_epi16(v[5], v[1]), half);
    Lanes y3 = dot(z34, FIX(1.175875602) - FIX(1.961570560), FIX(1.175875602));
    Lanes y4 = dot(z34, FIX(1.175875602), FIX(1.175875602) - FIX(0.390180644));
    __m256i x17 = interleave(v[1], v[7], half), x35 = interleave(v[3], v[5], half);
    Lanes odd[4] = {
        dot(x17, FIX(1.501321110) - FIX(0.899976223), -FIX(0.899976223)) + y4,
        dot(x35, FIX(3.072711026) - FIX(2.562915447), -FIX(2.562915447)) + y3,
        dot(x35, -FIX(2.562915447), FIX(2.053119869) - FIX(2.562915447)) + y4,
        dot(x17, -FIX(0.899976223), FIX(0.298631336) - FIX(0.899976223)) + y3,
    };
    for (int k = 0; k < 4; k++) {
        out[k] = even[k] + odd[k];
        out[7 - k] = even[k] - odd[k];
    }
}

AVX2_INLINE void pass_8(__m256i v[8], int shift)
{
    Lanes low[8], high[8];
    half_8(v, LOW, shift, low);
    half_8(v, HIGH, shift, high);
    for (int k = 0; k < 8; k++)
        v[k] = narrow(low[k], high[k], shift);
}

AVX2_INLINE void transpose(__m256i v[8])
{
    __m256i a[8], b[8];
    for (int k = 0; k < 4; k++) {
        a[2 * k] = _mm256_unpacklo_epi16(v[2 * k], v[2 * k + 1]);
        a[2 * k + 1] = _mm256_unpackhi_epi16(v[2 * k], v[2 * k + 1]);
    }
    for (int k = 0; k < 4; k++) {
        int of = k / 2 * 4 + k % 2;
        b[2 * k] = _mm256_unpacklo_epi32(a[of], a[of + 2]);
        b[2 * k + 1] = _mm256_unpackhi_epi32(a[of], a[of + 2]);
    }
    for (int k = 0; k < 4; k++) {
        v[2 * k] = _mm256_unpacklo_epi64(b[k], b[k + 4]);
        v[2 * k + 1] = _mm256_unpackhi_epi64(b[k], b[k + 4]);
    }
}

/* Two rows of sixteen samples: eight of each block. */
AVX2_INLINE void store_rows(__m256i rows, uint8_t *out, ptrdiff_t stride)
{
    rows = _mm256_permute4x64_epi64(rows, 0xd8);
    _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(rows));
    _mm_storeu_si128((__m128i *)(out + stride), _mm256_extracti128_si256(rows, 1));
}

/* Transposes as bytes, which is half the work. */
AVX2_INLINE void store_columns(const __m256i v[8], uint8_t *out, ptrdiff_t stride)
{
    __m256i c[4];
    for (int k = 0; k < 4; k++)
        c[k] = _mm256_add_epi8(_mm256_packs_epi16(v[k], v[k + 4]), _mm256_set1_epi8((char)128));
    __m256i c01 = _mm256_unpacklo_epi8(c[0], c[1]), c45 = _mm256_unpackhi_epi8(c[0], c[1]);
    __m256i c23 = _mm256_unpacklo_epi8(c[2], c[3]), c67 = _mm256_unpackhi_epi8(c[2], c[3]);
    for (int half = LOW; half <= HIGH; half++, out += 4 * stride) {
        __m256i left = interleave(c01, c23, half), right = interleave(c45, c67, half);
        store_rows(_mm256_unpacklo_epi32(left, right), out, stride);
        store_rows(_mm256_unpackhi_epi32(left, right), out + 2 * stride, stride);
    }
}

AVX2 void idct_pair_8_avx2(int16_t *coefficients, const int16_t *quant, uint8_t *out,
                         ptrdiff_t stride)
{
    __m256i v[8];
    load_pair(coefficients, quant, v);
    if (may_overflow(v[0])) {
        idct_pair_8(coefficients, quant, out, stride);
        return;
    }
    clear_pair(coefficients);
    pass_8(v, CONST_BITS - PASS1_BITS);
    transpose(v);
    pass_8(v, CONST_BITS + PASS1_BITS + 3);
    store_columns(v, out, stride);
}

/* Of x13 the elements 1 and 3 alternate, and so on; t0 is element 0, widened. */
AVX2_INLINE void transform_4(__m256i x13, __m256i x57, __m256i x26, Lanes t0, Lanes out[4])
{
    Lanes t2 = dot(x26, FIX(1.847759065), -FIX(0.765366865));
    Lanes o0 = dot(x13, FIX(1.061594337), -FIX(2.172734803))
               + dot(x57, FIX(1.451774981), -FIX(0.211164243));
    Lanes o2 = dot(x13, FIX(2.562915447), FIX(0.899976223))
               + dot(x57, -FIX(0.601344887), -FIX(0.509795579));
    out[0] = t0 + t2 + o2;
    out[1] = t0 - t2 + o0;
    out[2] = t0 - t2 - o0;
    out[3] = t0 + t2 - o2;
}

AVX2 void idct_pair_4_avx2(int16_t *coefficients, const int16_t *quant, uint8_t *out,
                           ptrdiff_t stride)
{
    enum { FIRST = CONST_BITS - PASS1_BITS + 1, SECOND = CONST_BITS + PASS1_BITS + 3 + 1 };
    __m256i v[8], columns[4], rows[4];
    Lanes sums[2][4];
    load_pair(coefficients, quant, v);
    if (may_overflow(v[0])) {
        idct_pair_4(coefficients, quant, out, stride);
        return;
    }
    clear_pair(coefficients);
    for (int half = LOW; half <= HIGH; half++)
        transform_4(interleave(v[1], v[3], half), interleave(v[5], v[7], half),
                    interleave(v[2], v[6], half), widen(v[0], half, CONST_BITS + 1, FIRST),
                    sums[half]);
    for (int y = 0; y < 4; y++)
        rows[y] = narrow(sums[LOW][y], sums[HIGH][y], FIRST);
    for (int half = LOW; half <= HIGH; half++) {
        __m256i upper = interleave(rows[0], rows[1], half);
        __m256i lower = interleave(rows[2], rows[3], half);
        columns[2 * half] = _mm256_unpacklo_epi32(upper, lower); /* 0 and 1, or 4 and 5 */
        columns[2 * half + 1] = _mm256_unpackhi_epi32(upper, lower);
    }
    transform_4(interleave(columns[0], columns[1], HIGH), interleave(columns[2], columns[3], HIGH),
                interleave(columns[1], columns[3], LOW),
                widen(columns[0], LOW, CONST_BITS + 1, SECOND), sums[0]);
    __m256i even = narrow(sums[0][0], sums[0][2], SECOND);
    __m256i odd = narrow(sums[0][1], sums[0][3], SECOND);
    __m256i left = interleave(even, odd, LOW), right = interleave(even, odd, HIGH);
    __m256i bytes = _mm256_packs_epi16(_mm256_unpacklo_epi32(left, right),
                                       _mm256_unpackhi_epi32(left, right));
    bytes = _mm256_add_epi8(bytes, _mm256_set1_epi8((char)128));
    /* Now each half has four rows of its block. */
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m128i top = _mm256_castsi256_si128(bytes), bottom = _mm256_extracti128_si256(bytes, 1);
    _mm_storel_epi64((__m128i *)out, top);
    _mm_storel_epi64((void *)(out + stride), _mm_unpackhi_epi64(top, top));
    _mm_storel_epi64((__m128i *)(out + 2 * stride), bottom);
    _mm_storel_epi64((void *)(out + 3 * stride), _mm_unpackhi_epi64(bottom, bottom));
}

AVX2 void idct_pair_2_avx2(int16_t *coefficients, const int16_t *quant, uint8_t *out,
                           ptrdiff_t stride)
{
    enum { FIRST = CONST_BITS - PASS1_BITS + 2, SECOND = CONST_BITS + PASS1_BITS + 3 + 2 };
    const __m256i row_weights = _mm256_broadcastsi128_si256(
        _mm_setr_epi16(0, FIX(3.624509785), 0, -FIX(1.272758580), 0, FIX(0.850430095), 0,
                       -FIX(0.720959822)));
    __m256i v[8];
    Lanes sums[2][2];
    load_pair(coefficients, quant, v);
    clear_pair(coefficients);
    for (int half = LOW; half <= HIGH; half++) {
        Lanes even = widen(v[0], half, CONST_BITS + 2, FIRST);
        Lanes odd = dot(interleave(v[1], v[3], half), FIX(3.624509785), -FIX(1.272758580))
                    + dot(interleave(v[5], v[7], half), FIX(0.850430095), -FIX(0.720959822));
        sums[0][half] = (even + odd) >> FIRST;
        sums[1][half] = (even - odd) >> FIRST;
    }
    __m256i odd[2];
    for (int y = 0; y < 2; y++)
        odd[y] = _mm256_madd_epi16(narrow(sums[y][LOW], sums[y][HIGH], 0), row_weights);
    odd[0] = _mm256_hadd_epi32(odd[0], odd[1]);
    Lanes across = (Lanes)_mm256_hadd_epi32(odd[0], odd[0]);
    __m256i first = _mm256_unpacklo_epi32((__m256i)sums[0][LOW], (__m256i)sums[1][LOW]);
    Lanes down = ((Lanes)first << (CONST_BITS + 2)) + (1 << (SECOND - 1));
    __m256i pixels = _mm256_unpacklo_epi32((__m256i)((down + across) >> SECOND),
                                           (__m256i)((down - across) >> SECOND));
    pixels = _mm256_packs_epi32(pixels, pixels);
    pixels = _mm256_add_epi8(_mm256_packs_epi16(pixels, pixels), _mm256_set1_epi8((char)128));
    uint32_t left = (uint32_t)_mm256_extract_epi32(pixels, 0);
    uint32_t right = (uint32_t)_mm256_extract_epi32(pixels, 4);
    uint32_t upper = (left & 0xffff) | right << 16, lower = left >> 16 | (right & 0xffff0000);
    memcpy(out, &upper, sizeof upper);
    memcpy(out + stride, &lower, sizeof lower);
}
#endif
