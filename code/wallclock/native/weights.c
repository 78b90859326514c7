/* The weights of a resize: as torch has them for uint8, each of them to the bit. */
#include "resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    double extent;                /* pixels that are resized */
    double scale, support;        /* pixels for one result, and on either side of its center */
    int stored;                   /* pixels that there are: `extent`, rounded up */
    int resized, start, end;      /* results; which of them are wanted */
    bool skipped, bicubic;
} Axis;

static Axis axis_of(const Placement *placement, int direction)
{
    const Window *crop = &placement->crop, *window = &placement->window;
    bool down = direction == DOWN;
    Axis axis = {.extent = down ? placement->down : placement->across,
                 .stored = down ? crop->height : crop->width,
                 .resized = down ? placement->resized_height : placement->resized_width,
                 .start = down ? window->top : window->left,
                 .bicubic = placement->bicubic};
    axis.end = axis.start + (down ? window->height : window->width);
    axis.skipped = axis.resized == axis.stored &&
                   (axis.end == axis.stored || axis.extent == axis.stored);
    if (axis.skipped)
        axis.extent = axis.stored;
    /* Of a window or a fraction torch is given a scale, and divides by it: its last bit differs. */
    bool whole = axis.extent == axis.stored && axis.end - axis.start == axis.resized;
    axis.scale = whole || axis.skipped ? axis.extent / axis.resized
                                       : 1 / (axis.resized / axis.extent);
    axis.support = (axis.bicubic ? 2 : 1) * (axis.scale >= 1 ? axis.scale : 1);
    return axis;
}

bool is_skipped(const Placement *placement, int direction)
{
    return axis_of(placement, direction).skipped;
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

static double filtered(double x, bool bicubic)
{
    const double a = -0.5;        /* Keys' cubic */
    x = fabs(x);
    if (!bicubic)
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
        total += weights[j] = filtered((j + first - center + 0.5) * inverse, axis->bicubic);
    for (int j = 0; j < n && total != 0; j++) {
        weights[j] /= total;
        largest = weights[j] > largest ? weights[j] : largest;
    }
    return largest;
}

/* How many results torch weighs: from 0 to the window's end, and one more where it would take the
 * pass for one that changes nothing. */
static int n_weighed(const Axis *axis)
{
    return axis->end == axis->stored && axis->end != axis->resized ? axis->end + 1 : axis->end;
}

/* Returns how many bits the largest weight leaves of 16. */
static int weigh_all(const Axis *axis, double *exact)
{
    double largest = 0;
    int precision = 0;
    for (int i = 0; i < n_weighed(axis); i++, exact += most_taps(axis)) {
        double weight = weigh(axis, i, exact);
        largest = weight > largest ? weight : largest;
    }
    while (precision < 22 && (int)(0.5 + largest * (1 << (precision + 1))) < 1 << 15)
        precision++;
    return precision;
}

/* The taps of all results become as many: those that have less, at an end, get zeros. A loop over
 * taps that ends at the same one each time is predicted. */
static void round_weights(const Axis *axis, const double *exact, bool mirror, Weights *made)
{
    for (int i = axis->start; i < axis->end; i++) {
        int at = mirror ? axis->end - 1 - i : i - axis->start, n;
        int16_t *weights = made->weights + (size_t)at * (size_t)made->stride;
        span_of(axis, i, &made->first[at], &n);
        for (int j = 0; j < n; j++) {
            double weight = exact[(size_t)i * (size_t)most_taps(axis) + (size_t)j];
            weight *= 1 << made->precision;
            weights[j] = (int16_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
        }
        while (n > 1 && weights[n - 1] == 0)
            n--;
        made->taps = max(made->taps, n);
    }
    for (int i = 0; i < made->count; i++) {
        int beyond = max(made->first[i] + made->taps - axis->stored, 0);
        int16_t *weights = made->weights + (size_t)i * (size_t)made->stride;
        made->first[i] -= beyond;
        memmove(weights + beyond, weights, (size_t)(made->taps - beyond) * sizeof *weights);
        memset(weights, 0, (size_t)beyond * sizeof *weights);
    }
}

/* One lane: taps from `tap` on of results from `result` on. False: they are not within a run. */
static bool fill_lane(const Weights *made, Step *step, int lane, int result, int tap)
{
    int end = min(result + 4, made->count), *base = &step->base[lane];
    for (int i = result; i < end; i++)
        *base = i == result ? made->first[i] + tap : min(*base, made->first[i] + tap);
    for (int i = result; i < end; i++)
        for (int j = 0; j < 4 && tap + j < made->taps; j++) {
            int at = made->first[i] + tap + j - *base, slot = 8 * lane + 2 * (i - result) + j % 2;
            if (!made->weights[i * made->stride + tap + j])
                continue;
            if (at >= RUN)
                return false;
            step->taps[j / 2][2 * slot] = (uint8_t)at;
            step->weights[j / 2][slot] = made->weights[i * made->stride + tap + j];
        }
    return true;
}

static bool fill_steps(Weights *made)
{
    Step *step = made->steps;
    for (int result = 0; result < made->count; result += 8)
        for (int tap = 0; tap < made->taps; tap += 4, step++) {
            memset(step->taps, 0x80, sizeof step->taps);
            for (int lane = 0; lane < 2; lane++)
                if (!fill_lane(made, step, lane, result + 4 * lane, tap))
                    return false;
        }
    return true;
}

static Weights *weights_new(const Axis *axis, bool mirror)
{
    enum { MOST_FOR_STEPS = 24 };  /* taps: four results of a larger factor are in no run */
    size_t most = (size_t)most_taps(axis), count = (size_t)(axis->end - axis->start + 3) / 4 * 4;
    size_t stride = (most + RUN - 1) / RUN * RUN;
    size_t n_steps = most <= MOST_FOR_STEPS ? (most + 3) / 4 : 0;
    size_t step_bytes = n_steps * ((count + 7) / 8) * sizeof(Step);
    Weights *made = calloc(1, sizeof(Weights) + step_bytes + count * (sizeof(int) + stride * 2));
    double *exact = malloc((size_t)n_weighed(axis) * most * sizeof(double));
    if (made && exact) {
        made->count = axis->end - axis->start;
        made->taps = 1;
        made->stride = (int)stride;
        made->steps = (Step *)(void *)(made + 1);
        made->first = (int *)(void *)((uint8_t *)made->steps + step_bytes);
        made->weights = (int16_t *)(void *)(made->first + count);
        made->precision = weigh_all(axis, exact);
        round_weights(axis, exact, mirror, made);
        made->n_steps = n_steps && fill_steps(made) ? (made->taps + 3) / 4 : 0;
    } else {
        free(made);
        made = NULL;
    }
    free(exact);
    return made;
}

const Weights *weights_of(Placement *placement, int direction)
{
    struct Weights **kept = &placement->weights[direction];
    Weights *made = __atomic_load_n(kept, __ATOMIC_ACQUIRE), *others = NULL;
    if (made)
        return made;
    Axis axis = axis_of(placement, direction);
    made = weights_new(&axis, direction == ACROSS && placement->mirror);
    if (made && !__atomic_compare_exchange_n(kept, &others, made, false, __ATOMIC_ACQ_REL,
                                             __ATOMIC_ACQUIRE)) {
        free(made);
        made = others;
    }
    return made;
}

/* --- placements ---------------------------------------------------------------------------- */

static bool contains(int size, int start, int count)
{
    enum { MOST = 1 << 16 };      /* more than a side of a JPEG or of a result */
    return size <= MOST && start >= 0 && count > 0 && count <= size && start <= size - count;
}

/* What an axis's results depend on. */
static void needs_of(const Axis *axis, int offset, int *start, int *count)
{
    int first = axis->start, last = axis->end - 1, n = 1;
    if (!axis->skipped) {
        span_of(axis, axis->end - 1, &last, &n);
        span_of(axis, axis->start, &first, &(int){0});
    }
    *start = offset + first;
    *count = last + n - first;
}

bool placement_fits(const Placement *placement, int width, int height, Window *needs)
{
    const Window *crop = &placement->crop, *window = &placement->window;
    if (!contains(width, crop->left, crop->width) || !contains(height, crop->top, crop->height) ||
        !contains(placement->resized_width, window->left, window->width) ||
        !contains(placement->resized_height, window->top, window->height) ||
        !(placement->across > crop->width - 1 && placement->across <= crop->width) ||
        !(placement->down > crop->height - 1 && placement->down <= crop->height))
        return false;
    Axis across = axis_of(placement, ACROSS), down = axis_of(placement, DOWN);
    needs_of(&across, crop->left, &needs->left, &needs->width);
    needs_of(&down, crop->top, &needs->top, &needs->height);
    return true;
}
