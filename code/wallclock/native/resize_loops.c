/* The inner loops of a resize: in plain C, some of which is compiled for AVX2 as well, and by hand
 * where the compiler's vectors are slow. */
#include "resize.h"

#include <string.h>

INLINE uint8_t rounded(int sum, int precision)
{
    return (uint8_t)max(min(sum >> precision, 255), 0);
}

/* Weights behind a result's last are zero: whole runs need no rest. */
INLINE void across_runs(const Weights *weights, const uint8_t *const *rgb, int step, int channels,
                        uint8_t *out, int plane)
{
    for (int channel = 0; channel < channels; channel++, out += plane)
        for (int i = 0; i < weights->count; i++) {
            const int16_t *weight = weights->weights + (size_t)i * (size_t)weights->stride;
            const uint8_t *pixel = rgb[channel] + weights->first[i] * step;
            int n = (weights->taps + RUN - 1) / RUN * RUN, sum = 1 << weights->precision >> 1;
            for (int j = 0; j < n; j++)
                sum += weight[j] * (int16_t)pixel[j * step];
            out[i] = rounded(sum, weights->precision);
        }
}

void resize_across(const Weights *weights, const uint8_t *const *rgb, int step, int channels,
                   uint8_t *out, int plane)
{
    across_runs(weights, rgb, step, channels, out, plane);
}

void resize_down(const uint8_t *const *rows, const int16_t *weights, int n, int precision,
                 int width, uint8_t *out)
{
    enum { AT_ONCE = 16 };
    for (int x = 0; x < width; x += AT_ONCE) {
        int sums[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            sums[i] = 1 << precision >> 1;
        for (int j = 0; j < n; j++)
            for (int i = 0; i < AT_ONCE; i++)
                sums[i] += weights[j] * (int16_t)rows[j][x + i];
        for (int i = 0; i < AT_ONCE; i++)
            out[x + i] = rounded(sums[i], precision);
    }
}

INLINE void join_rows(const uint8_t *restrict r, const uint8_t *restrict g,
                      const uint8_t *restrict b, int n, uint8_t *restrict out)
{
    for (int i = 0; i < n; i++, out += 3) {
        out[0] = r[i];
        out[1] = g[i];
        out[2] = b[i];
    }
}

void join(const uint8_t *const *rgb, int n, uint8_t *out)
{
    join_rows(rgb[0], rgb[1], rgb[2], n, out);
}

/* x / deviation as x * (1 / deviation), corrected by its remainder: the same but for rare
 * deviations, and three times as fast as a division. */
INLINE float normalized(float pixel, const Normalization *values, int channel)
{
    float x = pixel * (1.0f / 255) - values->mean[channel];
    float quotient = x * values->inverse[channel];
    float rest = __builtin_fmaf(-quotient, values->deviation[channel], x);
    return __builtin_fmaf(rest, values->inverse[channel], quotient);
}

void normalize(const uint8_t *pixels, int n, const Normalization *values, int channel, void *out)
{
    if (values->bytes == 4)
        for (int i = 0; i < n; i++)
            ((float *)out)[i] = values->levels.of_4[channel][pixels[i]];
    else
        for (int i = 0; i < n; i++)
            ((uint16_t *)out)[i] = values->levels.of_2[channel][pixels[i]];
}

void normalization_finish(Normalization *values)
{
    values->computes = values->bytes == 4;
    for (int channel = 0; channel < 3; channel++) {
        values->inverse[channel] = 1 / values->deviation[channel];
        for (int pixel = 0; pixel < 256 && values->computes; pixel++) {
            float level = normalized((float)pixel, values, channel);
            values->computes = !memcmp(&level, &values->levels.of_4[channel][pixel], sizeof level);
        }
    }
}

INLINE void separate_pixels(const uint8_t *pixels, int step, uint8_t *restrict r,
                            uint8_t *restrict g, uint8_t *restrict b, int n)
{
    for (int x = 0; x < n; x++, pixels += step) {
        r[x] = pixels[0];
        g[x] = pixels[1];
        b[x] = pixels[2];
    }
}

void separate(const uint8_t *pixels, int step, uint8_t *r, uint8_t *g, uint8_t *b, int n)
{
    separate_pixels(pixels, step, r, g, b, n);
}

#ifdef HAVE_AVX2
#include <immintrin.h>

AVX2_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256(at);
}

/* Eight results at a time, of their steps. What is a constant where it is inlined is the same for
 * all results. */
AVX2_INLINE void across_steps(const Weights *weights, int n_steps, bool two_taps,
                              const uint8_t *const *rgb, int channels, uint8_t *out, int plane)
{
    const Step *step = weights->steps;
    const __m256i zero = _mm256_setzero_si256();
    const __m256i round = _mm256_set1_epi32(1 << weights->precision >> 1);
    const __m128i precision = _mm_cvtsi32_si128(weights->precision);
    for (int i = 0; i < weights->count; i += 8) {
        __m256i sums[3] = {round, zero, zero};
        for (int channel = 1; channel < channels; channel++)
            sums[channel] = round;
        for (int s = 0; s < n_steps; s++, step++)
            for (int channel = 0; channel < channels; channel++) {
                __m256i pixels = _mm256_loadu2_m128i((const void *)(rgb[channel] + step->base[1]),
                                                     (const void *)(rgb[channel] + step->base[0]));
                for (int half = 0; half < (two_taps ? 1 : 2); half++) {
                    __m256i taps = _mm256_shuffle_epi8(pixels, load(step->taps[half]));
                    taps = _mm256_madd_epi16(taps, load(step->weights[half]));
                    sums[channel] = _mm256_add_epi32(sums[channel], taps);
                }
            }
        for (int channel = 0; channel < channels; channel++)
            sums[channel] = _mm256_sra_epi32(sums[channel], precision);
        __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                            _mm256_packs_epi32(sums[2], sums[2]));
        /* Each lane has four bytes of red, four of green and four of blue. */
        __m128i low = _mm256_castsi256_si128(bytes), high = _mm256_extracti128_si256(bytes, 1);
        __m128i rg = _mm_unpacklo_epi32(low, high);
        _mm_storel_epi64((void *)(out + i), rg);
        if (channels == 3) {
            _mm_storel_epi64((void *)(out + plane + i), _mm_srli_si128(rg, 8));
            _mm_storel_epi64((void *)(out + 2 * plane + i), _mm_unpackhi_epi32(low, high));
        }
    }
}

/* Pixels as other decoders store them, four taps of four results at a time. In the lower lane are
 * red and green, in the upper one blue; the four weights, repeated, fit both. Pixels are asked for
 * long before they are used, since they come from memory: 12 MP in 3.7 -> 2.4 ms. */
AVX2_INLINE void across_pixels(const Weights *weights, const uint8_t *row, int step, uint8_t *out,
                               int plane)
{
    enum { AHEAD = 8192 };
    const int NO = 0x80, t = step, u = 2 * step, v = 3 * step;
    const __m256i order = _mm256_setr_epi8(
        0, NO, t, NO, u, NO, v, NO, 1, NO, t + 1, NO, u + 1, NO, v + 1, NO,
        2, NO, t + 2, NO, u + 2, NO, v + 2, NO, NO, NO, NO, NO, NO, NO, NO, NO);
    const __m256i by_colour = _mm256_setr_epi8(
        0, 2, 4, 6, 1, 3, 5, 7, NO, NO, NO, NO, NO, NO, NO, NO,
        0, 2, 4, 6, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i round = _mm256_set1_epi32(1 << weights->precision >> 1);
    const __m128i precision = _mm_cvtsi32_si128(weights->precision);
    const int16_t *of_result = weights->weights;
    ptrdiff_t stride = weights->stride;
    for (int i = 0; i < weights->count; i += 4, of_result += 4 * stride) {
        const uint8_t *pixels[4];
        for (int k = 0; k < 4; k++) {
            pixels[k] = row + weights->first[i + k] * step;
            _mm_prefetch((const char *)pixels[k] + AHEAD, _MM_HINT_T0);
        }
        __m256i sums[4] = {zero, zero, zero, zero};
        for (ptrdiff_t j = 0; j < weights->taps; j += 4)
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) {
                __m128i four = _mm_loadu_si128((void *)(pixels[k] + j * step));
                __m128i taps = _mm_loadl_epi64((void *)(of_result + k * stride + j));
                __m256i x = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(four), order);
                x = _mm256_madd_epi16(x, _mm256_broadcastq_epi64(taps));
                sums[k] = _mm256_add_epi32(sums[k], x);
            }
        __m256i a = _mm256_add_epi32(_mm256_hadd_epi32(sums[0], sums[1]), round);
        __m256i b = _mm256_add_epi32(_mm256_hadd_epi32(sums[2], sums[3]), round);
        /* Red and green of four results in turn, and in the upper lane blue and nothing. */
        __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(a, precision),
                                           _mm256_sra_epi32(b, precision));
        words = _mm256_shuffle_epi8(_mm256_packus_epi16(words, words), by_colour);
        __m128i rg = _mm256_castsi256_si128(words);
        _mm_storeu_si32(out + i, rg);
        _mm_storeu_si32(out + plane + i, _mm_srli_si128(rg, 4));
        _mm_storeu_si32(out + 2 * plane + i, _mm256_extracti128_si256(words, 1));
    }
}

AVX2 void resize_across_avx2(const Weights *weights, const uint8_t *const *rgb, int step,
                             int channels, uint8_t *out, int plane)
{
    int n = weights->n_steps;
    if (step == 3)
        across_pixels(weights, rgb[0], 3, out, plane);
    else if (step == 4)
        across_pixels(weights, rgb[0], 4, out, plane);
    else if (n == 0)
        across_runs(weights, rgb, 1, channels, out, plane);
    else if (channels == 1)
        across_steps(weights, n, false, rgb, 1, out, plane);
    else if (weights->taps <= 2) /* an enlargement */
        across_steps(weights, 1, true, rgb, 3, out, plane);
    else if (n == 1)
        across_steps(weights, 1, false, rgb, 3, out, plane);
    else
        across_steps(weights, n, false, rgb, 3, out, plane);
}

/* Two rows at a time, whose bytes are interleaved for the multiplication. */
AVX2_INLINE void down_pairs(const uint8_t *const *rows, const int16_t *weights, int n_pairs,
                            int precision, int width, uint8_t *out)
{
    const __m256i zero = _mm256_setzero_si256(), round = _mm256_set1_epi32(1 << precision >> 1);
    const __m128i shift = _mm_cvtsi32_si128(precision);
    for (int x = 0; x < width; x += 32) {
        __m256i sums[4] = {round, round, round, round};
        for (int i = 0; i < n_pairs; i++) {
            int32_t two;
            memcpy(&two, weights + 2 * i, sizeof two);
            __m256i pair = _mm256_set1_epi32(two);
            __m256i a = load(rows[2 * i] + x), b = load(rows[2 * i + 1] + x);
            __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
            __m256i each[4] = {_mm256_unpacklo_epi8(low, zero), _mm256_unpackhi_epi8(low, zero),
                               _mm256_unpacklo_epi8(high, zero), _mm256_unpackhi_epi8(high, zero)};
            for (int k = 0; k < 4; k++)
                sums[k] = _mm256_add_epi32(sums[k], _mm256_madd_epi16(each[k], pair));
        }
        for (int k = 0; k < 4; k++)
            sums[k] = _mm256_sra_epi32(sums[k], shift);
        __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                            _mm256_packs_epi32(sums[2], sums[3]));
        _mm256_storeu_si256((void *)(out + x), bytes);
    }
}

AVX2 void resize_down_avx2(const uint8_t *const *rows, const int16_t *weights, int n, int precision,
                           int width, uint8_t *out)
{
    if (n <= 2)
        down_pairs(rows, weights, 1, precision, width, out);
    else if (n <= 4)
        down_pairs(rows, weights, 2, precision, width, out);
    else
        down_pairs(rows, weights, (n + 1) / 2, precision, width, out);
}

/* Compilers shuffle well within 16 bytes, and not within 32. */
__attribute__((target("ssse3"))) void join_avx2(const uint8_t *const *rgb, int n, uint8_t *out)
{
    join_rows(rgb[0], rgb[1], rgb[2], n, out);
}

/* The compiler makes vectors of it; looking up takes five times as long. */
AVX2 void normalize_avx2(const uint8_t *pixels, int n, const Normalization *values, int channel,
                         void *out)
{
    float *restrict levels = out;
    if (values->computes)
        for (int i = 0; i < n; i++)
            levels[i] = normalized(pixels[i], values, channel);
    else
        normalize(pixels, n, values, channel, out);
}

AVX2 void separate_avx2(const uint8_t *pixels, int step, uint8_t *r, uint8_t *g, uint8_t *b, int n)
{
    if (step == 3)
        separate_pixels(pixels, 3, r, g, b, n);
    else
        separate_pixels(pixels, 4, r, g, b, n);
}
#endif
