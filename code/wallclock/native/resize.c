/* Antialiased resize, bit for bit torch's of uint8: weights of 16 bits, first across and then down,
 * rounded to a byte after each (aten/src/ATen/native/cpu/UpSampleKernel.cpp; Pillow's Resample.c).
 *
 * A row of the source is resized across as it comes, while it is in the nearest cache, into a ring
 * of as many rows as one row of the result depends on. Rows that none depends on are passed over.
 */
#include "native.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_AVX2
#include <immintrin.h>
#endif

static int min(int a, int b)
{
    return a < b ? a : b;
}

static int max(int a, int b)
{
    return a > b ? a : b;
}

/* --- weights ------------------------------------------------------------------------------- */

/* One axis of a placement. Where all of it is the same, weights are the same. */
typedef struct {
    double extent;                /* pixels that are resized */
    double scale, support;        /* pixels for one result, and on either side of its center */
    int stored;                   /* pixels that there are: `extent`, rounded up */
    int resized, start, count;    /* results; the first one that is wanted, and how many are */
    int filter, mirror;
} Axis;

/* Eight neighbouring results and four taps of each, in two lanes of four results: where a lane
 * loads 16 pixels, which of those are the taps, and their weights. */
typedef struct {
    uint8_t taps[2][32];          /* two of each result, as 16 bits */
    int16_t weights[2][16];
    int32_t base[2];
} Step;

enum { RUN = 16 };                /* pixels that are loaded at once */

typedef struct {
    Axis axis;
    size_t bytes;
    unsigned used;                /* when */
    int precision;                /* bits of a weight behind the point */
    int taps, stride;             /* of a result, at most; and with zeros up to a whole run */
    int *first, *n;               /* of each result: its first tap, and how many it has */
    int16_t *weights;
    int n_steps;                  /* of each eight results; 0: their taps are too far apart */
    Step *steps;
} Weights;

enum { CACHED = 32, CACHED_BYTES = 1 << 20 };
struct WeightCache {
    int n;
    unsigned clock;
    Weights *of[CACHED];
};

static Axis axis_of(const Placement *placement, bool down)
{
    const Window *crop = &placement->crop, *window = &placement->window;
    Axis axis = {.filter = placement->filter};
    axis.extent = down ? placement->down : placement->across;
    axis.stored = down ? crop->height : crop->width;
    axis.resized = down ? placement->resized_height : placement->resized_width;
    axis.start = down ? window->top : window->left;
    axis.count = down ? window->height : window->width;
    axis.mirror = !down && placement->mirror;
    bool whole = axis.extent == axis.stored && axis.count == axis.resized;
    /* Either is what torch computes, and they may differ in their last bit. */
    axis.scale = whole ? axis.extent / axis.resized : 1 / (axis.resized / axis.extent);
    axis.support = (axis.filter == BICUBIC ? 2 : 1) * (axis.scale >= 1 ? axis.scale : 1);
    return axis;
}

/* Whether each result is a pixel: torch leaves out a pass that does not change the size. */
static bool is_skipped(const Axis *axis)
{
    int end = axis->start + axis->count;
    return axis->resized == axis->stored && (end == axis->stored || axis->extent == axis->stored);
}

static int most_taps(const Axis *axis)
{
    return (int)ceil(axis->support) * 2 + 1;
}

static void span_of(const Axis *axis, int i, int *first, int *n)
{
    double center = axis->scale * (i + 0.5);
    *first = max((int)(center - axis->support + 0.5), 0);
    *n = min((int)(center + axis->support + 0.5), axis->stored) - *first;
    *n = max(min(*n, most_taps(axis)), 0);
}

static double filtered(double x, int filter)
{
    x = fabs(x);
    if (filter == BILINEAR)
        return x < 1 ? 1 - x : 0;
    const double a = -0.5;        /* Keys' cubic */
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* Weights of result `i`, whose sum is 1; returns the largest. */
static double weigh(const Axis *axis, int i, double *weights)
{
    int first, n;
    double total = 0, largest = 0;
    double center = axis->scale * (i + 0.5), inverse = axis->scale >= 1 ? 1 / axis->scale : 1;
    span_of(axis, i, &first, &n);
    for (int j = 0; j < n; j++)
        total += weights[j] = filtered((j + first - center + 0.5) * inverse, axis->filter);
    for (int j = 0; j < n && total != 0; j++) {
        weights[j] /= total;
        largest = weights[j] > largest ? weights[j] : largest;
    }
    return largest;
}

/* As many bits as the largest weight leaves of 16. torch takes the largest of all that it makes:
 * from 0 to the window's end, and one more where it would otherwise skip the pass. */
static int precision_of(const Axis *axis, double *exact, double *spare)
{
    double largest = 0;
    int end = axis->start + axis->count, precision = 0;
    int made = end == axis->stored && end != axis->resized ? end + 1 : end;
    for (int i = 0; i < made; i++) {
        bool wanted = i >= axis->start && i < end;
        double *weights = wanted ? exact + (size_t)(i - axis->start) * most_taps(axis) : spare;
        double weight = weigh(axis, i, weights);
        largest = weight > largest ? weight : largest;
    }
    while (precision < 22 && (int)(0.5 + largest * (1 << (precision + 1))) < 1 << 15)
        precision++;
    return precision;
}

static void round_weights(Weights *made, const double *exact)
{
    const Axis *axis = &made->axis;
    for (int i = 0; i < axis->count; i++) {
        int at = axis->mirror ? axis->count - 1 - i : i, first, n;
        int16_t *rounded = made->weights + (size_t)at * made->stride;
        span_of(axis, axis->start + i, &first, &n);
        for (int j = 0; j < n; j++) {
            double weight = exact[(size_t)i * most_taps(axis) + j] * (1 << made->precision);
            rounded[j] = (int16_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
        }
        while (n > 0 && rounded[n - 1] == 0)
            n--;
        made->first[at] = first;
        made->n[at] = n;
        made->taps = max(made->taps, n);
    }
}

/* One lane of a step; false: the taps of its results are more than 16 pixels apart. */
static bool fill_lane(const Weights *made, Step *step, int lane, int result, int tap)
{
    int end = min(result + 4, made->axis.count), base = made->axis.stored - 1;
    for (int i = result; i < end; i++)
        base = min(base, made->first[i] + tap);
    step->base[lane] = base;
    for (int i = result; i < end; i++)
        for (int j = tap; j < min(tap + 4, made->n[i]); j++) {
            int at = made->first[i] + j - base;
            int pair = (j - tap) / 2, slot = lane * 8 + (i - result) * 2 + j % 2;
            if (at >= RUN)
                return false;
            step->taps[pair][2 * slot] = (uint8_t)at;
            step->weights[pair][slot] = made->weights[(size_t)i * made->stride + j];
        }
    return true;
}

static void fill_steps(Weights *made)
{
    int n = made->n_steps;
    for (int result = 0, at = 0; result < made->axis.count; result += 8)
        for (int s = 0; s < n; s++, at++) {
            Step *step = &made->steps[at];
            memset(step->taps, 0x80, sizeof step->taps);
            memset(step->weights, 0, sizeof step->weights);
            if (!fill_lane(made, step, 0, result, 4 * s) ||
                !fill_lane(made, step, 1, result + 4, 4 * s)) {
                made->n_steps = 0;
                return;
            }
        }
}

static Weights *weights_new(const Axis *axis)
{
    size_t reach = (size_t)most_taps(axis), count = (size_t)axis->count;
    size_t stride = (reach + RUN - 1) / RUN * RUN;
    size_t n_steps = axis->scale < RUN / 3 ? (reach + 3) / 4 : 0;
    size_t of_steps = n_steps * ((count + 7) / 8) * sizeof(Step);
    size_t bytes = sizeof(Weights) + of_steps + count * (2 * sizeof(int) + stride * 2);
    Weights *made = calloc(1, bytes);
    double *exact = malloc((count + 1) * reach * sizeof(double));
    if (!made || !exact) {
        free(made);
        free(exact);
        return NULL;
    }
    made->axis = *axis;
    made->bytes = bytes;
    made->stride = (int)stride;
    made->steps = (Step *)(made + 1);
    made->first = (int *)((uint8_t *)made->steps + of_steps);
    made->n = made->first + count;
    made->weights = (int16_t *)(made->n + count);
    made->precision = precision_of(axis, exact, exact + count * reach);
    round_weights(made, exact);
    free(exact);
    made->n_steps = min((int)n_steps, (made->taps + 3) / 4);
    fill_steps(made);
    return made;
}

void weight_cache_free(struct WeightCache *cache)
{
    for (int i = 0; cache && i < cache->n; i++)
        free(cache->of[i]);
    free(cache);
}

/* Drops what was not used for the longest time, but not what was used last: the other axis. */
static void make_room(struct WeightCache *cache, size_t bytes)
{
    for (;;) {
        size_t total = bytes;
        int oldest = 0;
        for (int i = 0; i < cache->n; i++) {
            total += cache->of[i]->bytes;
            if (cache->clock - cache->of[i]->used > cache->clock - cache->of[oldest]->used)
                oldest = i;
        }
        if (cache->n < 2 || (cache->n < CACHED && total <= CACHED_BYTES))
            return;
        free(cache->of[oldest]);
        cache->of[oldest] = cache->of[--cache->n];
    }
}

/* Valid until the next but one. */
static const Weights *weights_of(Scratch *scratch, const Axis *axis)
{
    if (!scratch->weights && !(scratch->weights = calloc(1, sizeof(struct WeightCache))))
        return NULL;
    struct WeightCache *cache = scratch->weights;
    cache->clock++;
    for (int i = 0; i < cache->n; i++)
        if (!memcmp(&cache->of[i]->axis, axis, sizeof *axis)) {
            cache->of[i]->used = cache->clock;
            return cache->of[i];
        }
    Weights *made = weights_new(axis);
    if (!made)
        return NULL;
    make_room(cache, made->bytes);
    made->used = cache->clock;
    return cache->of[cache->n++] = made;
}

/* --- placements ---------------------------------------------------------------------------- */

static bool contains(int size, int start, int count)
{
    return start >= 0 && count > 0 && count <= size && start <= size - count;
}

bool placement_fits(const Placement *placement, int width, int height)
{
    enum { MOST = 1 << 16 };      /* of a JPEG's sides, and far more than of a result's */
    const Window *crop = &placement->crop, *window = &placement->window;
    return width <= MOST && height <= MOST && placement->resized_width <= MOST &&
           placement->resized_height <= MOST && contains(width, crop->left, crop->width) &&
           contains(height, crop->top, crop->height) &&
           contains(placement->resized_width, window->left, window->width) &&
           contains(placement->resized_height, window->top, window->height) &&
           placement->across > crop->width - 1 && placement->across <= crop->width &&
           placement->down > crop->height - 1 && placement->down <= crop->height;
}

static void needs_of(const Axis *axis, int *start, int *count)
{
    int first, n, last, end = axis->start + axis->count;
    *start = axis->start;
    *count = axis->count;
    if (is_skipped(axis))
        return;
    span_of(axis, axis->start, start, &n);
    span_of(axis, end - 1, &first, &last);
    *count = first + last - *start;
}

Window placement_needs(const Placement *placement)
{
    Window needs;
    Axis across = axis_of(placement, false), down = axis_of(placement, true);
    needs_of(&across, &needs.left, &needs.width);
    needs_of(&down, &needs.top, &needs.height);
    needs.left += placement->crop.left;
    needs.top += placement->crop.top;
    return needs;
}

/* --- one row ------------------------------------------------------------------------------- */

static uint8_t rounded(int sum, int precision)
{
    return (uint8_t)max(min(sum >> precision, 255), 0);
}

static void resize_across(const Weights *weights, const uint8_t *const *rgb, int channels,
                          uint8_t *out, int plane)
{
    for (int channel = 0; channel < channels; channel++, out += plane)
        for (int i = 0; i < weights->axis.count; i++) {
            const int16_t *weight = weights->weights + (size_t)i * weights->stride;
            const uint8_t *pixel = rgb[channel] + weights->first[i];
            int sum = 1 << weights->precision >> 1;
            for (int j = 0; j < weights->n[i]; j++)
                sum += weight[j] * pixel[j];
            out[i] = rounded(sum, weights->precision);
        }
}

/* `n` rows to one, of `width` bytes, which is a multiple of 32. */
static void resize_down(const uint8_t *const *rows, const int16_t *weights, int n, int precision,
                        int width, uint8_t *out)
{
    for (int x = 0; x < width; x += 32) {
        int sums[32];
        for (int i = 0; i < 32; i++)
            sums[i] = 1 << precision >> 1;
        for (int j = 0; j < n; j++)
            for (int i = 0; i < 32; i++)
                sums[i] += weights[j] * rows[j][x + i];
        for (int i = 0; i < 32; i++)
            out[x + i] = rounded(sums[i], precision);
    }
}

static void interleave(const uint8_t *const *rgb, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++)
        for (int channel = 0; channel < 3; channel++)
            out[3 * i + channel] = rgb[channel][i];
}

static void look_up(const uint8_t *pixels, int n, const Normalization *values, int channel,
                    uint8_t *out)
{
    for (int i = 0; i < n; i++)
        if (values->bytes == 4)
            memcpy(out + 4 * i, &values->levels.of_4[channel][pixels[i]], 4);
        else
            memcpy(out + 2 * i, &values->levels.of_2[channel][pixels[i]], 2);
}

#ifdef HAVE_AVX2

AVX2 static __m256i load_lanes(const uint8_t *low, const uint8_t *high)
{
    __m128i a = _mm_loadu_si128((const __m128i *)low), b = _mm_loadu_si128((const __m128i *)high);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

/* Four taps of eight results, added to their sums. */
AVX2 static __m256i add_step(__m256i sums, const Step *step, const uint8_t *row)
{
    __m256i pixels = load_lanes(row + step->base[0], row + step->base[1]);
    for (int pair = 0; pair < 2; pair++) {
        __m256i taps = _mm256_loadu_si256((const __m256i *)step->taps[pair]);
        __m256i weights = _mm256_loadu_si256((const __m256i *)step->weights[pair]);
        __m256i products = _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, taps), weights);
        sums = _mm256_add_epi32(sums, products);
    }
    return sums;
}

/* As `resize_across`, where steps can be made; four times as fast. */
AVX2 static void step_across(const Weights *weights, const uint8_t *const *rgb, int channels,
                             uint8_t *out, int plane)
{
    const Step *step = weights->steps;
    const __m256i half = _mm256_set1_epi32(1 << weights->precision >> 1);
    const __m128i precision = _mm_cvtsi32_si128(weights->precision);
    for (int i = 0; i < weights->axis.count; i += 8) {
        __m256i r = half, g = half, b = half;
        for (int s = 0; s < weights->n_steps; s++, step++) {
            r = add_step(r, step, rgb[0]);
            if (channels == 3) {
                g = add_step(g, step, rgb[1]);
                b = add_step(b, step, rgb[2]);
            }
        }
        r = _mm256_sra_epi32(r, precision);
        g = _mm256_sra_epi32(g, precision);
        b = _mm256_sra_epi32(b, precision);
        __m256i rgb8 = _mm256_packus_epi16(_mm256_packs_epi32(r, g), _mm256_packs_epi32(b, b));
        /* Of either lane: four bytes of red, of green and of blue. */
        __m128i low = _mm256_castsi256_si128(rgb8), high = _mm256_extracti128_si256(rgb8, 1);
        __m128i rg = _mm_unpacklo_epi32(low, high);
        _mm_storel_epi64((__m128i *)(out + i), rg);
        if (channels == 3) {
            _mm_storel_epi64((__m128i *)(out + plane + i), _mm_srli_si128(rg, 8));
            _mm_storel_epi64((__m128i *)(out + 2 * plane + i), _mm_unpackhi_epi32(low, high));
        }
    }
}

/* As `resize_across`, for results whose taps are far apart: 16 taps at a time. */
AVX2 static void run_across(const Weights *weights, const uint8_t *const *rgb, int channels,
                            uint8_t *out, int plane)
{
    for (int channel = 0; channel < channels; channel++, out += plane)
        for (int i = 0; i < weights->axis.count; i++) {
            const int16_t *weight = weights->weights + (size_t)i * weights->stride;
            const uint8_t *pixel = rgb[channel] + weights->first[i];
            __m256i sums = _mm256_setzero_si256();
            for (int j = 0; j < weights->n[i]; j += RUN) {
                __m128i pixels = _mm_loadu_si128((const __m128i *)(pixel + j));
                __m256i of_16 = _mm256_loadu_si256((const __m256i *)(weight + j));
                __m256i products = _mm256_madd_epi16(_mm256_cvtepu8_epi16(pixels), of_16);
                sums = _mm256_add_epi32(sums, products);
            }
            __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums),
                                        _mm256_extracti128_si256(sums, 1));
            sum = _mm_hadd_epi32(sum, sum);
            sum = _mm_hadd_epi32(sum, sum);
            out[i] = rounded(_mm_cvtsi128_si32(sum) + (1 << weights->precision >> 1),
                             weights->precision);
        }
}

/* As `resize_down`: two rows at a time, whose bytes are interleaved for the multiplication. */
AVX2 static void pairs_down(const uint8_t *const *rows, const int16_t *weights, int n,
                            int precision, int width, uint8_t *out)
{
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(1 << precision >> 1);
    const __m128i shift = _mm_cvtsi32_si128(precision);
    for (int x = 0; x < width; x += 32) {
        __m256i sums[4] = {half, half, half, half};
        for (int j = 0; j < n; j += 2) {
            int32_t two;
            memcpy(&two, weights + j, sizeof two);
            const __m256i pair = _mm256_set1_epi32(two);
            __m256i a = _mm256_loadu_si256((const __m256i *)(rows[j] + x));
            __m256i b = _mm256_loadu_si256((const __m256i *)(rows[j + 1 < n ? j + 1 : j] + x));
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
        _mm256_storeu_si256((__m256i *)(out + x), bytes);
    }
}

AVX2 static __m128i shuffled(__m128i pixels, __m128i order, char from)
{
    return _mm_shuffle_epi8(pixels, _mm_add_epi8(order, _mm_set1_epi8(from)));
}

/* As `interleave`, 16 pixels at a time; the last ones overlap. */
AVX2 static void interleave_16(const uint8_t *const *rgb, int n, uint8_t *out)
{
    enum { NO = -128 };
    /* Each third of 48 bytes has one colour in these places, one in those and one in the last. */
    const __m128i x = _mm_setr_epi8(0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO, NO, 5);
    const __m128i y = _mm_setr_epi8(NO, 0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO, NO);
    const __m128i z = _mm_setr_epi8(NO, NO, 0, NO, NO, 1, NO, NO, 2, NO, NO, 3, NO, NO, 4, NO);
    if (n < 16) {
        interleave(rgb, n, out);
        return;
    }
    for (int i = 0; i < n; i += 16) {
        int at = min(i, n - 16);
        __m128i r = _mm_loadu_si128((const __m128i *)(rgb[0] + at));
        __m128i g = _mm_loadu_si128((const __m128i *)(rgb[1] + at));
        __m128i b = _mm_loadu_si128((const __m128i *)(rgb[2] + at));
        __m128i *third = (__m128i *)(out + 3 * at);
        _mm_storeu_si128(third, shuffled(r, x, 0) | shuffled(g, y, 0) | shuffled(b, z, 0));
        _mm_storeu_si128(third + 1, shuffled(r, z, 6) | shuffled(g, x, 5) | shuffled(b, y, 5));
        _mm_storeu_si128(third + 2, shuffled(r, y, 11) | shuffled(g, z, 11) | shuffled(b, x, 10));
    }
}

/* As `look_up`, computed as `normalized` does; the last eight overlap. */
AVX2 static void normalize_8(const uint8_t *pixels, int n, const Normalization *values, int channel,
                             uint8_t *out)
{
    if (n < 8 || !values->computes) {
        look_up(pixels, n, values, channel, out);
        return;
    }
    const __m256 scale = _mm256_set1_ps(1.0f / 255);
    const __m256 mean = _mm256_set1_ps(values->mean[channel]);
    const __m256 deviation = _mm256_set1_ps(values->deviation[channel]);
    const __m256 inverse = _mm256_set1_ps(values->inverse[channel]);
    for (int i = 0; i < n; i += 8) {
        int at = min(i, n - 8);
        __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(pixels + at)));
        __m256 x = _mm256_sub_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(bytes), scale), mean);
        __m256 quotient = _mm256_mul_ps(x, inverse);
        __m256 rest = _mm256_fnmadd_ps(quotient, deviation, x);
        _mm256_storeu_ps((float *)(void *)(out + 4 * at), _mm256_fmadd_ps(rest, inverse, quotient));
    }
}

#endif

/* x / deviation as x * (1 / deviation), corrected by its remainder: exact, and three times as fast
 * as a division. */
static float normalized(const Normalization *values, int channel, int pixel)
{
    float x = (float)pixel * (1.0f / 255) - values->mean[channel];
    float quotient = x * values->inverse[channel];
    float rest = fmaf(-quotient, values->deviation[channel], x);
    return fmaf(rest, values->inverse[channel], quotient);
}

void normalization_finish(Normalization *values)
{
    values->computes = values->bytes == 4;
    for (int channel = 0; channel < 3; channel++) {
        values->inverse[channel] = 1 / values->deviation[channel];
        for (int pixel = 0; pixel < 256 && values->computes; pixel++) {
            float level = normalized(values, channel, pixel);
            values->computes = !memcmp(&level, &values->levels.of_4[channel][pixel], sizeof level);
        }
    }
}

/* --- all rows ------------------------------------------------------------------------------ */

typedef void Across(const Weights *, const uint8_t *const *, int, uint8_t *, int);
typedef void Down(const uint8_t *const *, const int16_t *, int, int, int, uint8_t *);

static Across *across_for(const Weights *weights)
{
#ifdef HAVE_AVX2
    if (kernels->avx2)
        return weights->n_steps ? step_across : run_across;
#endif
    (void)weights;
    return resize_across;
}

static Down *down_for(void)
{
#ifdef HAVE_AVX2
    if (kernels->avx2)
        return pairs_down;
#endif
    return resize_down;
}

static void write_row(const Row *row, int y, const uint8_t *const *rgb, int n)
{
    uint8_t *out = row->memory + y * row->stride;
    const Normalization *values = row->normalization;
    void (*write_colours)(const uint8_t *const *, int, uint8_t *) = interleave;
    void (*write_levels)(const uint8_t *, int, const Normalization *, int, uint8_t *) = look_up;
#ifdef HAVE_AVX2
    if (kernels->avx2) {
        write_colours = interleave_16;
        write_levels = normalize_8;
    }
#endif
    if (values)
        for (int channel = 0; channel < 3; channel++)
            write_levels(rgb[channel], n, values, channel, out + channel * row->plane);
    else if (row->channels == 3)
        write_colours(rgb, n, out);
    else
        memcpy(out, rgb[0], (size_t)n);
}

/* What a placement in progress needs. */
typedef struct {
    Source *source;
    const Placement *placement;
    const Row *row;
    Axis axes[2];                 /* across, down */
    const Weights *across, *down; /* NULL: each result is its pixel */
    int channels, plane;          /* bytes of a channel in a row of the ring */
    int n_rows;                   /* of the ring */
    uint8_t *ring, *result;
    const uint8_t **rows;         /* of the ring, in order */
} Work;

static uint8_t *in_ring(const Work *work, int y)
{
    return work->ring + (size_t)(y % work->n_rows) * (size_t)(work->channels * work->plane);
}

/* Row `y` of the source, resized across, into the ring. */
static void make_row(const Work *work, int y)
{
    const Window *crop = &work->placement->crop;
    const uint8_t *rgb[3];
    uint8_t *out = in_ring(work, y);
    work->source->row(work->source, crop->top + y, rgb);
    for (int channel = 0; channel < 3; channel++)
        rgb[channel] += crop->left;
    if (work->across)
        across_for(work->across)(work->across, rgb, work->channels, out, work->plane);
    else
        for (int channel = 0; channel < work->channels; channel++)
            memcpy(out + channel * work->plane, rgb[channel] + work->axes[0].start,
                   (size_t)work->axes[0].count);
}

static void make_result(Work *work, int y, int *made)
{
    const Weights *down = work->down;
    int first = down ? down->first[y] : work->axes[1].start + y, n = down ? down->n[y] : 1;
    const uint8_t *result = work->result, *rgb[3];
    for (*made = max(*made, first); *made < first + n; ++*made)
        make_row(work, *made);
    for (int j = 0; j < n; j++)
        work->rows[j] = in_ring(work, first + j);
    if (down)
        down_for()(work->rows, down->weights + (size_t)y * down->stride, n, down->precision,
                   work->channels * work->plane, work->result);
    else
        result = work->rows[0];
    for (int channel = 0; channel < 3; channel++)
        rgb[channel] = result + min(channel, work->channels - 1) * work->plane;
    write_row(work->row, y, rgb, work->axes[0].count);
}

Status resize(Scratch *scratch, Source *source, const Placement *placement, const Row *row)
{
    Work work = {.source = source, .placement = placement, .row = row, .channels = row->channels};
    for (int down = 0; down < 2; down++)
        work.axes[down] = axis_of(placement, down);
    bool mirrored = placement->mirror;
    if ((mirrored || !is_skipped(&work.axes[0])) &&
        !(work.across = weights_of(scratch, &work.axes[0])))
        return NO_MEMORY;
    if (!is_skipped(&work.axes[1]) && !(work.down = weights_of(scratch, &work.axes[1])))
        return NO_MEMORY;
    work.plane = (work.axes[0].count + 31) / 32 * 32;
    work.n_rows = work.down ? max(work.down->taps, 1) : 1;
    size_t size = (size_t)work.plane * (size_t)work.channels;
    size_t of_rows = (size_t)(work.n_rows * (int)sizeof *work.rows + 63) / 64 * 64;
    uint8_t *memory = scratch_take(scratch, RESIZED, of_rows + (size_t)(work.n_rows + 1) * size);
    if (!memory)
        return NO_MEMORY;
    work.rows = (const uint8_t **)(void *)memory;
    work.ring = memory + of_rows;
    work.result = work.ring + (size_t)work.n_rows * size;
    int made = 0;
    for (int y = 0; y < work.axes[1].count; y++)
        make_result(&work, y, &made);
    return DECODED;
}
