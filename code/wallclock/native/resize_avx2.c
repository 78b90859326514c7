/* The inner loops of a resize, for processors with AVX2. */
#include "resize.h"

#ifdef HAVE_AVX2
#include <immintrin.h>
#include <string.h>

AVX2_INLINE __m256i load(const void *at)
{
    return _mm256_loadu_si256(at);
}

AVX2_INLINE __m256i load_lanes(const uint8_t *row, const int32_t base[2])
{
    __m128i low = _mm_loadu_si128((const void *)(row + base[0]));
    __m128i high = _mm_loadu_si128((const void *)(row + base[1]));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

AVX2_INLINE __m256i add_half(__m256i sums, const Step *step, int half, __m256i pixels)
{
    __m256i taps = _mm256_shuffle_epi8(pixels, load(step->taps[half]));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(taps, load(step->weights[half])));
}

/* What is the same for all results is a constant where it is inlined. */
AVX2_INLINE void across_steps(const Weights *weights, int n_steps, bool two_taps, bool far,
                              const uint8_t *const *rgb, int channels, uint8_t *out, int plane)
{
    const Step *step = weights->steps;
    const __m256i zero = _mm256_setzero_si256();
    const __m256i round = _mm256_set1_epi32(1 << weights->precision >> 1);
    const __m128i precision = _mm_cvtsi32_si128(weights->precision);
    for (int i = 0; i < weights->axis.count; i += 8) {
        const __m256i begin = far ? zero : round;
        __m256i halves[3][2] = {{begin, zero}, {begin, zero}, {begin, zero}}, sums[3] = {zero};
        for (int s = 0; s < n_steps; s++, step++)
            for (int channel = 0; channel < channels; channel++) {
                __m256i *half = halves[channel], pixels = load_lanes(rgb[channel], step->base[0]);
                half[0] = add_half(half[0], step, 0, pixels);
                if (far)
                    pixels = load_lanes(rgb[channel], step->base[1]);
                if (!two_taps)
                    half[far] = add_half(half[far], step, 1, pixels);
            }
        for (int channel = 0; channel < channels; channel++) {
            __m256i *half = halves[channel];
            if (far)
                half[0] = _mm256_add_epi32(_mm256_hadd_epi32(half[0], half[1]), round);
            sums[channel] = _mm256_sra_epi32(half[0], precision);
        }
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

AVX2_INLINE __m256i sums_of_run(const uint8_t *pixels, const int16_t *weights, int n)
{
    __m256i sums = _mm256_setzero_si256();
    for (int j = 0; j < n; j += RUN) {
        __m256i run = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(pixels + j)));
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(run, load(weights + j)));
    }
    return sums;
}

/* For results whose taps are far apart: 16 taps of one result at a time. */
AVX2_INLINE void across_runs(const Weights *weights, const uint8_t *const *rgb, int channels,
                             uint8_t *out, int plane)
{
    const __m128i half = _mm_set1_epi32(1 << weights->precision >> 1);
    const __m128i precision = _mm_cvtsi32_si128(weights->precision);
    const int16_t *of_result = weights->weights;
    for (int i = 0; i < weights->axis.count; i++, of_result += weights->stride) {
        __m256i sums[3];
        for (int channel = 0; channel < 3; channel++)
            sums[channel] = channel < channels ? sums_of_run(rgb[channel] + weights->first[i],
                                                             of_result, weights->n[i])
                                               : sums[0];
        __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]),
                                        _mm256_hadd_epi32(sums[2], sums[2]));
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        sum = _mm_sra_epi32(_mm_add_epi32(sum, half), precision);
        sum = _mm_packs_epi32(sum, sum);
        int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        for (int channel = 0; channel < channels; channel++)
            out[channel * plane + i] = (uint8_t)(bytes >> 8 * channel);
    }
}

AVX2 void resize_across_avx2(const Weights *weights, const uint8_t *const *rgb, int channels,
                             uint8_t *out, int plane)
{
    int n = weights->n_steps;
    if (n == 0)
        across_runs(weights, rgb, channels, out, plane);
    else if (channels == 1)
        across_steps(weights, n, false, weights->far, rgb, 1, out, plane);
    else if (weights->far)
        across_steps(weights, n, false, true, rgb, 3, out, plane);
    else if (weights->taps <= 2) /* an enlargement */
        across_steps(weights, 1, true, false, rgb, 3, out, plane);
    else if (n == 1)
        across_steps(weights, 1, false, false, rgb, 3, out, plane);
    else
        across_steps(weights, n, false, false, rgb, 3, out, plane);
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

AVX2_INLINE __m128i shuffled(__m128i pixels, __m128i order, char from)
{
    return _mm_shuffle_epi8(pixels, _mm_add_epi8(order, _mm_set1_epi8(from)));
}

/* 16 pixels at a time; the last 16 may overlap those before. */
AVX2 void join_avx2(const uint8_t *const *rgb, int n, uint8_t *out)
{
    enum { NO = -128 };
    /* A third of 48 bytes has one colour in these places, one in those and one in the last. */
    const __m128i x = _mm_setr_epi8(0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO, NO, 5);
    const __m128i y = _mm_setr_epi8(NO, 0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO, NO);
    const __m128i z = _mm_setr_epi8(NO, NO, 0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO);
    if (n < 16)
        join(rgb, n, out);
    for (int i = 0; i < n && n >= 16; i += 16) {
        int at = min(i, n - 16);
        __m128i r = _mm_loadu_si128((const void *)(rgb[0] + at));
        __m128i g = _mm_loadu_si128((const void *)(rgb[1] + at));
        __m128i b = _mm_loadu_si128((const void *)(rgb[2] + at));
        __m128i *third = (void *)(out + 3 * at);
        _mm_storeu_si128(third, shuffled(r, x, 0) | shuffled(g, y, 0) | shuffled(b, z, 0));
        _mm_storeu_si128(third + 1, shuffled(r, z, 6) | shuffled(g, x, 5) | shuffled(b, y, 5));
        _mm_storeu_si128(third + 2, shuffled(r, y, 11) | shuffled(g, z, 11) | shuffled(b, x, 10));
    }
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

#endif
