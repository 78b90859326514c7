/* Antialiased resize, bit for bit torch's of uint8: weights of 16 bits, first across and then down,
 * rounded to a byte after each (aten/src/ATen/native/cpu/UpSampleKernel.cpp; Pillow's Resample.c).
 *
 * A row of the source is resized across as it comes, while it is in the nearest cache, into a ring
 * of as many rows as one row of the result depends on. Rows that none depends on are passed over.
 */
#include "resize.h"

#include <string.h>

typedef struct {
    Source *source;
    const Row *row;
    int left, top;                /* in the source, of what is resized */
    Window window;                /* of the result */
    const Weights *across, *down; /* NULL: each result is its pixel */
    int channels, plane;          /* bytes of one channel of a row, in the ring */
    int n_rows, made;             /* rows in the ring, and how far down the source it is */
    uint8_t *ring, *result;
    const uint8_t **rows;         /* in the ring, on which one of the result depends */
} Work;

static uint8_t *in_ring(const Work *work, int y)
{
    return work->ring + (size_t)(y % work->n_rows) * (size_t)(work->channels * work->plane);
}

static void make_row(const Work *work, int y)
{
    Source *source = work->source;
    const uint8_t *rgb[3];
    uint8_t *out = in_ring(work, y);
    source->row(source, work->top + y, rgb);
    for (int channel = 0; channel < 3; channel++)
        rgb[channel] += work->left * source->step;
    if (work->across)
        kernels->resize_across(work->across, rgb, source->step, work->channels, out, work->plane);
    else
        for (int channel = 0; channel < work->channels; channel++)
            memcpy(out + channel * work->plane, rgb[channel] + work->window.left,
                   (size_t)work->window.width);
}

static void write_row(const Row *row, int y, const uint8_t *const *rgb, int n)
{
    uint8_t *out = row->memory + y * row->stride;
    if (row->normalization)
        for (int channel = 0; channel < 3; channel++)
            kernels->normalize(rgb[channel], n, row->normalization, channel,
                               out + channel * row->plane);
    else if (row->channels == 3)
        kernels->join(rgb, n, out);
    else
        memcpy(out, rgb[0], (size_t)n);
}

/* Row `y` of the result. */
static void make_result(Work *work, int y)
{
    const Weights *down = work->down;
    const int16_t *weights = down ? down->weights + (size_t)y * (size_t)down->stride : NULL;
    int first = down ? down->first[y] : work->window.top + y, n = down ? down->taps : 1;
    const uint8_t *result = in_ring(work, first), *rgb[3];
    while (n > 1 && weights[n - 1] == 0)
        n--;
    for (work->made = max(work->made, first); work->made < first + n; work->made++)
        make_row(work, work->made);
    if (down) {
        for (int j = 0; j < n; j++)
            work->rows[j] = in_ring(work, first + j);
        work->rows[n] = result;
        kernels->resize_down(work->rows, weights, n, down->precision,
                             work->channels * work->plane, work->result);
        result = work->result;
    }
    for (int channel = 0; channel < 3; channel++)
        rgb[channel] = result + min(channel, work->channels - 1) * work->plane;
    write_row(work->row, y, rgb, work->window.width);
}

static bool take_memory(Work *work, Scratch *scratch)
{
    enum { VECTOR = 32 };
    work->plane = (work->window.width + VECTOR - 1) / VECTOR * VECTOR;
    work->n_rows = work->down ? work->down->taps : 1;
    size_t size = (size_t)work->plane * (size_t)work->channels, n = (size_t)work->n_rows;
    work->ring = scratch_take(scratch, RESIZED, (n + 1) * (size + sizeof *work->rows));
    if (!work->ring)
        return false;
    work->result = work->ring + n * size;
    work->rows = (const uint8_t **)(void *)(work->result + size);
    return true;
}

Status resize(Scratch *scratch, Source *source, Placement *placement, const Row *row)
{
    Work work = {.source = source, .row = row, .channels = row->channels,
                 .left = placement->crop.left, .top = placement->crop.top,
                 .window = placement->window};
    bool across = placement->mirror || !is_skipped(placement, ACROSS);
    if ((across && !(work.across = weights_of(placement, ACROSS))) ||
        (!is_skipped(placement, DOWN) && !(work.down = weights_of(placement, DOWN))) ||
        !take_memory(&work, scratch))
        return NO_MEMORY;
    if (!across || work.across->n_steps)
        source->step = 1;
    for (int y = 0; y < work.window.height; y++)
        make_result(&work, y);
    return DECODED;
}
