/* What the parts of the resize share: `weights.c`, `resize.c` and its inner loops. */
#ifndef WALLCLOCK_RESIZE_H
#define WALLCLOCK_RESIZE_H

#include "native.h"

enum { ACROSS, DOWN };
enum { RUN = 16 };                /* pixels that are loaded at once */

/* Four taps of eight neighbouring results, two of them in each half. A lane of a half has four
 * results, whose taps are within a run of pixels. */
typedef struct {
    uint8_t taps[2][32];          /* in 16 bits each: which of the run; 0x80 for zero */
    int16_t weights[2][16];
    int32_t base[2];              /* where each lane's run begins */
} Step;

/* Of one axis of a placement. */
typedef struct Weights {
    int count;                    /* results; up to three more are there, of weight zero */
    int precision;                /* bits of a weight behind the point */
    int taps;                     /* of each result */
    int stride;                   /* from result to result: taps, with zeros up to a whole run */
    int *first;                   /* of each result: the pixel of its first tap */
    int16_t *weights;
    int n_steps;                  /* of each eight results; 0: their taps are too far apart */
    Step *steps;
} Weights;
/* Kept with the placement; NULL: no memory. */
const Weights *weights_of(Placement *placement, int direction);
/* Whether each result is a pixel: torch leaves out a pass that does not change the size. */
bool is_skipped(const Placement *placement, int direction);

INLINE int min(int a, int b)
{
    return a < b ? a : b;
}

INLINE int max(int a, int b)
{
    return a > b ? a : b;
}

#endif
