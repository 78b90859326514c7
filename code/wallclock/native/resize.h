/* What the parts of the resize share: `weights.c`, `resize.c` and its inner loops. */
#ifndef WALLCLOCK_RESIZE_H
#define WALLCLOCK_RESIZE_H

#include "native.h"

/* One axis of a placement. Where all of it is the same, weights are the same. */
typedef struct {
    double extent;                /* pixels that are resized */
    double scale, support;        /* pixels for one result, and on either side of its center */
    int stored;                   /* pixels that there are: `extent`, rounded up */
    int resized, start, count;    /* results; the first one that is wanted, and how many are */
    int filter, mirror;
} Axis;
enum { ACROSS, DOWN };
Axis axis_of(const Placement *placement, int direction);
/* Whether each result is a pixel: torch leaves out a pass that does not change the size. */
bool is_skipped(const Axis *axis);

/* Four taps of eight neighbouring results, for a multiplication of 16 pixels in each half. A lane of
 * a half loads 16 pixels, of which it takes two taps of four results; or, where taps are far apart,
 * four taps of two. */
typedef struct {
    uint8_t taps[2][32];          /* in 16 bits each: which of the pixels; 0x80 for zero */
    int16_t weights[2][16];
    int32_t base[2][2];           /* where each half's lanes load */
} Step;

enum { RUN = 16 };                /* pixels that are loaded at once */

typedef struct Weights {
    Axis axis;
    int precision;                /* bits of a weight behind the point */
    int taps;                     /* of a result, at most */
    int stride;                   /* from result to result: taps, with zeros up to a whole run */
    int *first, *n;               /* of each result: its first tap, and how many it has */
    int16_t *weights;
    int n_steps;                  /* of each eight results; 0: their taps are too far apart */
    bool far;                     /* a lane of theirs has two results, not four */
    Step *steps;
} Weights;
/* Valid until the next call but one; NULL: no memory. */
const Weights *weights_of(Scratch *scratch, const Axis *axis);
/* Frees those that are too large to keep. */
void weights_trim(struct WeightCache *cache);

INLINE int min(int a, int b)
{
    return a < b ? a : b;
}

INLINE int max(int a, int b)
{
    return a > b ? a : b;
}

INLINE uint8_t rounded(int sum, int precision)
{
    return (uint8_t)max(min(sum >> precision, 255), 0);
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

#endif
