/* Antialiased resize, bit for bit torch's of uint8: weights of 16 bits, first across and then down,
 * rounded to a byte after each (aten/src/ATen/native/cpu/UpSampleKernel.cpp; Pillow's Resample.c).
 *
 * A row of the source is resized across as it comes, while it is in the nearest cache, into a ring
 * of as many rows as one row of the result depends on. Rows that none depends on are passed over.
 */
#include "resize.h"

#include <string.h>

/* --- inner loops --------------------------------------------------------------------------- */

void resize_across(const Weights *weights, const uint8_t *const *rgb, int channels, uint8_t *out,
                   int plane)
{
    for (int channel = 0; channel < channels; channel++, out += plane)
        for (int i = 0; i < weights->axis.count; i++) {
            const int16_t *weight = weights->weights + (size_t)i * (size_t)weights->stride;
            const uint8_t *pixel = rgb[channel] + weights->first[i];
            int sum = 1 << weights->precision >> 1;
            for (int j = 0; j < weights->n[i]; j++)
                sum += weight[j] * pixel[j];
            out[i] = rounded(sum, weights->precision);
        }
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

void join(const uint8_t *const *rgb, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++)
        for (int channel = 0; channel < 3; channel++)
            out[3 * i + channel] = rgb[channel][i];
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

/* --- all rows ------------------------------------------------------------------------------ */

typedef struct {
    Source *source;
    const Row *row;
    int left, top;                /* in the source, of what is resized */
    Axis axes[2];
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
    const uint8_t *rgb[3];
    uint8_t *out = in_ring(work, y);
    work->source->row(work->source, work->top + y, rgb);
    for (int channel = 0; channel < 3; channel++)
        rgb[channel] += work->left;
    if (work->across)
        kernels->resize_across(work->across, rgb, work->channels, out, work->plane);
    else
        for (int channel = 0; channel < work->channels; channel++)
            memcpy(out + channel * work->plane, rgb[channel] + work->axes[ACROSS].start,
                   (size_t)work->axes[ACROSS].count);
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
    int first = down ? down->first[y] : work->axes[DOWN].start + y, n = down ? down->n[y] : 1;
    const uint8_t *result = in_ring(work, first), *rgb[3];
    for (work->made = max(work->made, first); work->made < first + n; work->made++)
        make_row(work, work->made);
    if (down) {
        for (int j = 0; j < n; j++)
            work->rows[j] = in_ring(work, first + j);
        work->rows[n] = result;
        kernels->resize_down(work->rows, down->weights + (size_t)y * (size_t)down->stride, n,
                             down->precision, work->channels * work->plane, work->result);
        result = work->result;
    }
    for (int channel = 0; channel < 3; channel++)
        rgb[channel] = result + min(channel, work->channels - 1) * work->plane;
    write_row(work->row, y, rgb, work->axes[ACROSS].count);
}

static bool take_memory(Work *work, Scratch *scratch)
{
    enum { VECTOR = 32 };
    work->plane = (work->axes[ACROSS].count + VECTOR - 1) / VECTOR * VECTOR;
    work->n_rows = work->down ? max(work->down->taps, 1) : 1;
    size_t size = (size_t)work->plane * (size_t)work->channels, n = (size_t)work->n_rows;
    size_t of_rows = ((n + 1) * sizeof *work->rows + VECTOR - 1) / VECTOR * VECTOR;
    work->ring = scratch_take(scratch, RESIZED, (n + 1) * size + of_rows);
    if (!work->ring)
        return false;
    work->result = work->ring + n * size;
    work->rows = (const uint8_t **)(void *)(work->result + size);
    return true;
}

Status resize(Scratch *scratch, Source *source, const Placement *placement, const Row *row)
{
    Work work = {.source = source, .row = row, .channels = row->channels};
    Status status = NO_MEMORY;
    work.left = placement->crop.left;
    work.top = placement->crop.top;
    for (int direction = ACROSS; direction <= DOWN; direction++)
        work.axes[direction] = axis_of(placement, direction);
    bool across = placement->mirror || !is_skipped(&work.axes[ACROSS]);
    bool down = !is_skipped(&work.axes[DOWN]);
    if ((!across || (work.across = weights_of(scratch, &work.axes[ACROSS]))) &&
        (!down || (work.down = weights_of(scratch, &work.axes[DOWN]))) &&
        take_memory(&work, scratch)) {
        for (int y = 0; y < work.axes[DOWN].count; y++)
            make_result(&work, y);
        status = DECODED;
    }
    weights_trim(scratch->weights);
    return status;
}
