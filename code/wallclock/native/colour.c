/* The inner loops over pixels: upsampling, colours, and pixels taken apart; in plain C, and for
 * AVX2. Vector kernels write whole vectors, up to 32 pixels behind the last. */
#include "native.h"

#include <string.h>

static inline uint8_t clamp(int16_t x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* (x * factor) >> 15, rounded. */
static inline int scaled_by(int x, int factor)
{
    return (((x * factor) >> 14) + 1) >> 1;
}

/* jdcolor.c: ycc_rgb_convert. Its products have 16 bits behind the point; with these, of which
 * words hold all, the results are the same, and compilers make faster code. */
void rgb_of_ycc(const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                uint8_t *restrict r, uint8_t *restrict g, uint8_t *restrict b, int n)
{
    for (int x = 0; x < n; x++) {
        int16_t blue = (int16_t)(cb[x] - 128), red = (int16_t)(cr[x] - 128), luma = y[x];
        r[x] = clamp((int16_t)(luma + red + scaled_by(red, 13173)));
        g[x] = clamp((int16_t)(luma - red + ((-22554 * blue + 18734 * red + 32768) >> 16)));
        b[x] = clamp((int16_t)(luma + 2 * blue + scaled_by(blue, -7471)));
    }
}

INLINE void column_sums_of(const uint8_t *near, const uint8_t *far, int16_t *restrict sums, int n)
{
    for (int x = 0; x < n; x++)
        sums[x] = (int16_t)(3 * near[x] + far[x]);
}

void column_sums(const uint8_t *near, const uint8_t *far, int16_t *sums, int n)
{
    column_sums_of(near, far, sums, n);
}

static void between_columns(const int16_t *sums, int even, int odd, uint8_t *out, int n)
{
    for (int x = 0; x < n; x++) {
        out[2 * x] = (uint8_t)((3 * sums[x] + sums[x - 1] + even) >> 4);
        out[2 * x + 1] = (uint8_t)((3 * sums[x] + sums[x + 1] + odd) >> 4);
    }
}

void rgb_of_sums(const uint8_t *y, const int16_t *cb, const int16_t *cr, int even, int odd,
                 uint8_t *r, uint8_t *g, uint8_t *b, int n)
{
    enum { CHUNK = 128 };
    uint8_t blue[2 * CHUNK], red[2 * CHUNK];
    for (int x = 0; x < n; x += CHUNK) {
        int chunk = n - x < CHUNK ? n - x : CHUNK;
        between_columns(cb + x, even, odd, blue, chunk);
        between_columns(cr + x, even, odd, red, chunk);
        rgb_of_ycc(y + 2 * x, blue, red, r + 2 * x, g + 2 * x, b + 2 * x, 2 * chunk);
    }
}

#ifdef HAVE_AVX2
#include <immintrin.h>

/* Sixteen lanes of 16 bits. Of 32 pixels, the even and the odd ones are computed apart: a shift
 * and a mask take them from their bytes, and one shuffle puts them back. */
typedef int16_t Lanes __attribute__((vector_size(32)));

typedef struct { Lanes even, odd; } Both;

AVX2_INLINE Both load_pixels(const uint8_t *samples)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)samples);
    return (Both){(Lanes)_mm256_and_si256(x, _mm256_set1_epi16(255)),
                  (Lanes)_mm256_srli_epi16(x, 8)};
}

AVX2_INLINE void store_pixels(uint8_t *out, Lanes even, Lanes odd)
{
    const __m256i alternate = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    __m256i bytes = _mm256_packus_epi16((__m256i)even, (__m256i)odd);
    _mm256_storeu_si256((__m256i *)out, _mm256_shuffle_epi8(bytes, alternate));
}

/* (x * factor) >> 15, rounded. */
AVX2_INLINE Lanes scaled(Lanes x, int factor)
{
    return (Lanes)_mm256_mulhrs_epi16((__m256i)x, _mm256_set1_epi16((int16_t)factor));
}

/* What is added to luma for green, plus `cr`: (-22554 cb + 18734 cr) >> 16, rounded. */
AVX2_INLINE Lanes green(Lanes cb, Lanes cr)
{
    const __m256i factors = _mm256_set1_epi32((int)(18734u << 16 | (uint16_t)-22554));
    const __m256i half = _mm256_set1_epi32(1 << 15);
    __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16((__m256i)cb, (__m256i)cr), factors);
    __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16((__m256i)cb, (__m256i)cr), factors);
    low = _mm256_srai_epi32(_mm256_add_epi32(low, half), 16);
    high = _mm256_srai_epi32(_mm256_add_epi32(high, half), 16);
    return (Lanes)_mm256_packs_epi32(low, high);
}

/* Chroma less 128. */
AVX2_INLINE void store_rgb(Both y, Both cb, Both cr, uint8_t *r, uint8_t *g, uint8_t *b)
{
    store_pixels(r, y.even + cr.even + scaled(cr.even, 13173),
                 y.odd + cr.odd + scaled(cr.odd, 13173));
    store_pixels(g, y.even - cr.even + green(cb.even, cr.even),
                 y.odd - cr.odd + green(cb.odd, cr.odd));
    store_pixels(b, y.even + 2 * cb.even + scaled(cb.even, -7471),
                 y.odd + 2 * cb.odd + scaled(cb.odd, -7471));
}

AVX2 void rgb_of_ycc_avx2(const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                          uint8_t *r, uint8_t *g, uint8_t *b, int n)
{
    for (int x = 0; x < n; x += 32) {
        Both blue = load_pixels(cb + x), red = load_pixels(cr + x);
        store_rgb(load_pixels(y + x), (Both){blue.even - 128, blue.odd - 128},
                  (Both){red.even - 128, red.odd - 128}, r + x, g + x, b + x);
    }
}

AVX2 void column_sums_avx2(const uint8_t *near, const uint8_t *far, int16_t *sums, int n)
{
    column_sums_of(near, far, sums, n);
}

AVX2_INLINE Both between(const int16_t *sums, int even, int odd)
{
    Lanes left, here, right;
    memcpy(&left, sums - 1, sizeof left);
    memcpy(&here, sums, sizeof here);
    memcpy(&right, sums + 1, sizeof right);
    here *= 3;
    return (Both){(here + left + (int16_t)(even - 128 * 16)) >> 4,
                  (here + right + (int16_t)(odd - 128 * 16)) >> 4};
}

AVX2 void rgb_of_sums_avx2(const uint8_t *y, const int16_t *cb, const int16_t *cr, int even,
                           int odd, uint8_t *r, uint8_t *g, uint8_t *b, int n)
{
    for (int x = 0; x < n; x += 16)
        store_rgb(load_pixels(y + 2 * x), between(cb + x, even, odd), between(cr + x, even, odd),
                  r + 2 * x, g + 2 * x, b + 2 * x);
}
#endif
