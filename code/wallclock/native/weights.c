/* The weights of a resize: as torch has them for uint8, each of them to the bit. */
#include "resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CACHED = 64, KEPT_BYTES = 1 << 16 };
struct WeightCache {
    Weights *of[CACHED];          /* in the order in which they were made, but for gaps */
    int next;
};

Axis axis_of(const Placement *placement, int direction)
{
    const Window *crop = &placement->crop, *window = &placement->window;
    bool down = direction == DOWN;
    Axis axis = {.filter = placement->filter, .mirror = !down && placement->mirror};
    axis.extent = down ? placement->down : placement->across;
    axis.stored = down ? crop->height : crop->width;
    axis.resized = down ? placement->resized_height : placement->resized_width;
    axis.start = down ? window->top : window->left;
    axis.count = down ? window->height : window->width;
    /* torch is given a scale for a window or a fraction, and divides by it; the last bit differs. */
    bool whole = axis.extent == axis.stored && axis.count == axis.resized;
    if (is_skipped(&axis)) {
        axis.extent = axis.stored; /* for a mirror, which each result goes through */
        whole = true;
    }
    axis.scale = whole ? axis.extent / axis.resized : 1 / (axis.resized / axis.extent);
    axis.support = (axis.filter == BICUBIC ? 2 : 1) * (axis.scale >= 1 ? axis.scale : 1);
    return axis;
}

bool is_skipped(const Axis *axis)
{
    int end = axis->start + axis->count;
    return axis->resized == axis->stored && (end == axis->stored || axis->extent == axis->stored);
}

static int most_taps(const Axis *axis)
{
    return (int)ceil(axis->support) * 2 + 1;
}

/* The pixels that a result consists of. */
static void span_of(const Axis *axis, int result, int *first, int *n)
{
    double center = axis->scale * (result + 0.5);
    *first = max((int)(center - axis->support + 0.5), 0);
    *n = min((int)(center + axis->support + 0.5), axis->stored) - *first;
    *n = max(min(*n, most_taps(axis)), 0);
}

static double filtered(double x, int filter)
{
    const double a = -0.5;        /* Keys' cubic */
    x = fabs(x);
    if (filter == BILINEAR)
        return x < 1 ? 1 - x : 0;
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* The weights of a result, whose sum is 1; returns the largest. */
static double weigh(const Axis *axis, int result, double *weights)
{
    int first, n;
    double total = 0, largest = 0;
    double center = axis->scale * (result + 0.5), inverse = axis->scale >= 1 ? 1 / axis->scale : 1;
    span_of(axis, result, &first, &n);
    for (int j = 0; j < n; j++)
        total += weights[j] = filtered((j + first - center + 0.5) * inverse, axis->filter);
    for (int j = 0; j < n && total != 0; j++) {
        weights[j] /= total;
        largest = weights[j] > largest ? weights[j] : largest;
    }
    return largest;
}

/* As many bits as the largest weight leaves of 16; of all results that torch makes: from 0 to the
 * window's end, and one more where it would take the pass for one that changes nothing. */
static int weigh_all(const Axis *axis, double *weights, double *of_unwanted)
{
    double largest = 0;
    int end = axis->start + axis->count, precision = 0;
    int made = end == axis->stored && end != axis->resized ? end + 1 : end;
    for (int i = 0; i < made; i++) {
        bool wanted = i >= axis->start && i < end;
        size_t at = (size_t)(i - axis->start) * (size_t)most_taps(axis);
        double weight = weigh(axis, i, wanted ? weights + at : of_unwanted);
        largest = weight > largest ? weight : largest;
    }
    while (precision < 22 && (int)(0.5 + largest * (1 << (precision + 1))) < 1 << 15)
        precision++;
    return precision;
}

static void round_weights(Weights *made, const double *exact)
{
    const Axis *axis = &made->axis;
    for (int i = 0; i < axis->count; i++, exact += most_taps(axis)) {
        int at = axis->mirror ? axis->count - 1 - i : i, n;
        int16_t *weights = made->weights + (size_t)at * (size_t)made->stride;
        span_of(axis, axis->start + i, &made->first[at], &n);
        for (int j = 0; j < n; j++) {
            double weight = exact[j] * (1 << made->precision);
            weights[j] = (int16_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
        }
        while (n > 1 && weights[n - 1] == 0)
            n--;
        made->n[at] = n;
        made->taps = max(made->taps, n);
    }
}

/* One lane of one half of a step: taps from `tap` on of results from `result` on. False: they are
 * not within one run of pixels. */
static bool fill_lane(const Weights *made, Step *step, int half, int lane, int result, int tap)
{
    int base = made->axis.stored - 1, per_lane = made->far ? 2 : 4, taps = made->far ? 4 : 2;
    result += 4 * lane + (made->far ? 2 * half : 0);
    int end = min(result + per_lane, made->axis.count);
    for (int i = result; i < end; i++)
        base = min(base, made->first[i] + tap);
    step->base[half][lane] = base;
    tap += made->far ? 0 : 2 * half;
    for (int i = result; i < end; i++)
        for (int j = 0; j < taps && tap + j < made->n[i]; j++) {
            int at = made->first[i] + tap + j - base, slot = 8 * lane + taps * (i - result) + j;
            if (at >= RUN)
                return false;
            step->taps[half][2 * slot] = (uint8_t)at;
            step->weights[half][slot] = made->weights[i * made->stride + tap + j];
        }
    return true;
}

static bool fill_steps(Weights *made)
{
    Step *step = made->steps;
    for (int result = 0; result < made->axis.count; result += 8)
        for (int tap = 0; tap < 4 * made->n_steps; tap += 4, step++) {
            memset(step, 0, sizeof *step);
            memset(step->taps, 0x80, sizeof step->taps);
            for (int lane = 0; lane < 4; lane++)
                if (!fill_lane(made, step, lane / 2, lane % 2, result, tap))
                    return false;
        }
    return true;
}

static Weights *weights_new(const Axis *axis)
{
    size_t most = (size_t)most_taps(axis), count = (size_t)axis->count;
    size_t stride = (most + RUN - 1) / RUN * RUN;
    size_t n_steps = axis->scale < RUN - 4 ? (most + 3) / 4 : 0;
    size_t step_bytes = n_steps * ((count + 7) / 8) * sizeof(Step);
    Weights *made = calloc(1, sizeof(Weights) + step_bytes + count * (2 * sizeof(int) + stride * 2));
    double *exact = malloc((count + 1) * most * sizeof(double));
    if (made && exact) {
        made->axis = *axis;
        made->stride = (int)stride;
        made->steps = (Step *)(void *)(made + 1);
        made->first = (int *)(void *)((uint8_t *)made->steps + step_bytes);
        made->n = made->first + count;
        made->weights = (int16_t *)(void *)(made->n + count);
        made->precision = weigh_all(axis, exact, exact + count * most);
        round_weights(made, exact);
        made->n_steps = min((int)n_steps, (made->taps + 3) / 4);
        if (!fill_steps(made)) {
            made->far = true;
            made->n_steps = fill_steps(made) ? made->n_steps : 0;
        }
    } else {
        free(made);
        made = NULL;
    }
    free(exact);
    return made;
}

const Weights *weights_of(Scratch *scratch, const Axis *axis)
{
    struct WeightCache *cache = scratch->weights;
    if (!cache)
        cache = scratch->weights = calloc(1, sizeof(struct WeightCache));
    for (int i = 0; cache && i < CACHED; i++)
        if (cache->of[i] && memcmp(&cache->of[i]->axis, axis, sizeof *axis) == 0) {
            if (i == cache->next) /* the other axis's weights do not take its place */
                cache->next = (i + 1) % CACHED;
            return cache->of[i];
        }
    Weights *made = cache ? weights_new(axis) : NULL;
    if (made) {
        free(cache->of[cache->next]);
        cache->of[cache->next] = made;
        cache->next = (cache->next + 1) % CACHED;
    }
    return made;
}

void weights_trim(struct WeightCache *cache)
{
    for (int i = 0; cache && i < CACHED; i++) {
        const Weights *made = cache->of[i];
        if (made && (size_t)made->axis.count * (size_t)made->stride * sizeof(int16_t) > KEPT_BYTES) {
            free(cache->of[i]);
            cache->of[i] = NULL;
        }
    }
}

void weight_cache_free(struct WeightCache *cache)
{
    for (int i = 0; cache && i < CACHED; i++)
        free(cache->of[i]);
    free(cache);
}

/* --- placements ---------------------------------------------------------------------------- */

static bool contains(int size, int start, int count)
{
    return start >= 0 && count > 0 && count <= size && start <= size - count;
}

bool placement_fits(const Placement *placement, int width, int height)
{
    enum { MOST = 1 << 16 };      /* more than a side of a JPEG or of a result */
    const Window *crop = &placement->crop, *window = &placement->window;
    return width <= MOST && height <= MOST && placement->resized_width <= MOST &&
           placement->resized_height <= MOST && contains(width, crop->left, crop->width) &&
           contains(height, crop->top, crop->height) &&
           contains(placement->resized_width, window->left, window->width) &&
           contains(placement->resized_height, window->top, window->height) &&
           placement->across > crop->width - 1 && placement->across <= crop->width &&
           placement->down > crop->height - 1 && placement->down <= crop->height;
}

static void needs_of(Axis axis, int *start, int *count)
{
    int first, n;
    *start = axis.start;
    *count = axis.count;
    if (is_skipped(&axis))
        return;
    span_of(&axis, axis.start + axis.count - 1, &first, &n);
    *count = first + n;
    span_of(&axis, axis.start, start, &n);
    *count -= *start;
}

Window placement_needs(const Placement *placement)
{
    Window needs;
    needs_of(axis_of(placement, ACROSS), &needs.left, &needs.width);
    needs_of(axis_of(placement, DOWN), &needs.top, &needs.height);
    needs.left += placement->crop.left;
    needs.top += placement->crop.top;
    return needs;
}
