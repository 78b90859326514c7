/* A JPEG to planes of samples: sizes at a scale, memory, and blocks to samples. */
#include <stdlib.h>
#include <string.h>

#include "jpeg.h"

enum { ALIGNMENT = 64, READABLE = 64, KEPT = 16 << 20 };

Scratch *scratch_new(void)
{
    return calloc(1, sizeof(Scratch));
}

void scratch_drop(Scratch *scratch, Use use)
{
    free(scratch->blocks[use].allocated);
    memset(&scratch->blocks[use], 0, sizeof scratch->blocks[use]);
}

void scratch_free(Scratch *scratch)
{
    if (!scratch)
        return;
    for (Use use = 0; use < N_BLOCKS; use++)
        scratch_drop(scratch, use);
    huffman_cache_free(scratch->tables);
    free(scratch);
}

void scratch_trim(Scratch *scratch)
{
    for (Use use = 0; use < N_BLOCKS; use++)
        if (scratch->blocks[use].size > KEPT)
            scratch_drop(scratch, use);
}

void *scratch_take(Scratch *scratch, Use use, size_t size)
{
    if (scratch->blocks[use].memory && size <= scratch->blocks[use].size)
        return scratch->blocks[use].memory;
    scratch_drop(scratch, use);
    if (size > PTRDIFF_MAX / 2)
        return NULL;
    /* Fresh pages are zero already, and cost nothing until they are touched. */
    uint8_t *allocated = calloc(1, size + ALIGNMENT + READABLE);
    if (!allocated)
        return NULL;
    scratch->blocks[use].allocated = allocated;
    scratch->blocks[use].size = size;
    scratch->blocks[use].memory = allocated + (-(uintptr_t)allocated & (ALIGNMENT - 1));
    return scratch->blocks[use].memory;
}

/* How large a block becomes: chroma that is half as large is not scaled down as far, so that it
 * need not be upsampled (jpeg_calc_output_dimensions in libjpeg's jdmaster.c). */
static int scaled_block(const Frame *frame, const Component *c, int n)
{
    int size = n;
    while (size < 8 && frame->h_max * n % (c->h * size * 2) == 0 &&
           frame->v_max * n % (c->v * size * 2) == 0)
        size *= 2;
    return size;
}

static int part(int pixels, int factor, int n, int most)
{
    return (int)(((int64_t)pixels * factor * n + 8 * most - 1) / (8 * most));
}

static void set_window(Frame *frame, const Window *window, int n)
{
    frame->end_column = frame->mcus_wide;
    frame->end_row = frame->mcus_high;
    frame->is_whole = !window;
    if (!window)
        return;
    /* Two pixels around it, which upsampling looks at. */
    int wide = frame->h_max * n, high = frame->v_max * n;
    int left = window->left - 2, top = window->top - 2;
    frame->first_column = left > 0 ? left / wide : 0;
    frame->first_row = top > 0 ? top / high : 0;
    int column = (window->left + window->width + 1) / wide + 1;
    int row = (window->top + window->height + 1) / high + 1;
    if (column < frame->end_column)
        frame->end_column = column;
    if (row < frame->end_row)
        frame->end_row = row;
}

/* Planes of whole MCUs. */
static bool make_planes(Scratch *scratch, Frame *frame, int n, Planes *planes)
{
    size_t size = 0, at[MAX_COMPONENTS];
    for (int i = 0; i < frame->n_components; i++) {
        Component *c = &frame->components[i];
        c->n = scaled_block(frame, c, n);
        c->stride = ((ptrdiff_t)c->padded_wide * c->n + ALIGNMENT - 1) & -ALIGNMENT;
        at[i] = size;
        size += (size_t)c->stride * (size_t)(c->padded_high * c->n);
    }
    uint8_t *samples = scratch_take(scratch, SAMPLES, size);
    for (int i = 0; samples && i < frame->n_components; i++) {
        Component *c = &frame->components[i];
        c->samples = samples + at[i];
        planes->planes[i] = (Plane){c->samples, c->stride,
                                    part(frame->width, c->h, c->n, frame->h_max),
                                    part(frame->height, c->v, c->n, frame->v_max)};
    }
    const Component *last = &frame->components[frame->n_components - 1];
    planes->n_planes = frame->n_components;
    planes->width = part(frame->width, 1, n, 1);
    planes->height = part(frame->height, 1, n, 1);
    planes->across = frame->h_max * n / (last->h * last->n);
    planes->down = frame->v_max * n / (last->v * last->n);
    int width = planes->planes[frame->n_components - 1].width;
    planes->smooth = n > 1 && (planes->across == 1 || width > 2);
    return samples;
}

/* Each block takes a bit at least, of each component: no more memory is asked for than that. */
static bool has_blocks(const Frame *frame)
{
    size_t blocks = 0;
    for (int i = 0; i < frame->n_components; i++)
        blocks += (size_t)frame->components[i].wide * (size_t)frame->components[i].high;
    return blocks / 8 <= (size_t)(frame->rest.end - frame->rest.at);
}

/* Without AVX2, libjpeg-turbo's own vectors are faster where all coefficients count: it takes half
 * of the time at full size, 0.9 of it at 1/4, and as long at 1/2 of progressive files. */
static bool slower_here(const Frame *frame, int denominator)
{
    return kernels->slow && denominator < (frame->sof == 0xC2 ? 2 : 8);
}

Status jpeg_decode(Scratch *scratch, const uint8_t *bytes, size_t size, int denominator,
                   const Window *window, Planes *planes)
{
    Frame frame;
    Scan scan;
    Status status = frame_begin(&frame, bytes, size);
    if (!status)
        status = next_scan(&frame, &scan);
    if (!status)
        status = frame_colours(&frame, &planes->colours);
    if (status)
        return status;
    if (!has_blocks(&frame))
        return IRREGULAR;
    if (slower_here(&frame, denominator))
        return SLOWER_HERE;
    int n = 8 / denominator;
    set_window(&frame, window, n);
    if (!make_planes(scratch, &frame, n, planes))
        return NO_MEMORY;
    return (frame.sof == 0xC2 ? decode_progressive : decode_sequential)(scratch, &frame, &scan);
}
