/* A JPEG to planes of samples: sizes at a scale, memory, and blocks to samples. */
#include <stdlib.h>
#include <string.h>

#include "jpeg.h"

/* Kept: the coefficients of 2560 x 2560 px. Fresh pages for each would take as long as decoding. */
enum { ALIGNMENT = 64, READABLE = 64, KEPT = 48 << 20 };

Scratch *scratch_new(void)
{
    return calloc(1, sizeof(Scratch));
}

static void scratch_drop(Scratch *scratch, Use use)
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

/* Memory for whole MCUs, and for what a block of two may write behind them. Coefficients are zeroed
 * as they become samples, so that no image begins with clearing them: of a 5-megapixel photo they
 * are 15 to 30 MB. */
static bool take_memory(Scratch *scratch, Frame *frame, int n)
{
    Component *const end = frame->components + frame->n_components;
    size_t n_samples = 0, blocks = 0, whole = 0;
    for (Component *c = frame->components; c < end; c++) {
        c->n = scaled_block(frame, c, n);
        c->stride = ((ptrdiff_t)c->padded_wide * c->n + 16 + ALIGNMENT - 1) & -ALIGNMENT;
        c->blocks = (size_t)c->stored_wide * (size_t)(frame->sof == SOF2 ? c->padded_high : c->v);
        n_samples += (size_t)c->stride * (size_t)(c->padded_high * c->n);
        blocks += c->blocks;
        whole += c->n > 1 ? c->blocks : 0;
    }
    size_t size = whole * sizeof(uint64_t) + blocks * sizeof(int16_t);
    uint8_t *samples = scratch_take(scratch, SAMPLES, n_samples);
    uint64_t *known = scratch_take(scratch, KNOWN, size);
    int16_t (*coefficients)[BLOCK] = scratch_take(scratch, COEFFICIENTS, whole * 2 * BLOCK);
    if (!samples || !known || !coefficients)
        return false;
    memset(known, 0, size);
    int16_t *dc = (int16_t *)(known + whole);
    for (Component *c = frame->components; c < end; c++) {
        c->samples = samples;
        c->dc = dc;
        c->known = known;
        c->coefficients = coefficients;
        samples += (size_t)c->stride * (size_t)(c->padded_high * c->n);
        dc += c->blocks;
        known += c->n > 1 ? c->blocks : 0;
        coefficients += c->n > 1 ? c->blocks : 0;
    }
    return true;
}

static void describe(const Frame *frame, int n, Planes *planes)
{
    const Component *last = &frame->components[frame->n_components - 1];
    for (const Component *c = frame->components; c <= last; c++)
        planes->planes[c - frame->components] =
            (Plane){c->samples, c->stride, part(frame->width, c->h, c->n, frame->h_max),
                    part(frame->height, c->v, c->n, frame->v_max)};
    planes->n_planes = frame->n_components;
    planes->width = part(frame->width, 1, n, 1);
    planes->height = part(frame->height, 1, n, 1);
    planes->across = frame->h_max * n / (last->h * last->n);
    planes->down = frame->v_max * n / (last->v * last->n);
    int width = planes->planes[frame->n_components - 1].width;
    planes->smooth = n > 1 && (planes->across == 1 || width > 2);
}

/* Of flat blocks no coefficient is touched: it would be a cache miss a block. Rows of eight samples
 * are written; what is too much is overwritten by the next blocks. */
void put_pair(const Component *c, size_t at, uint8_t *out)
{
    if (c->known[at] | c->known[at + 1]) {
        c->known[at] = c->known[at + 1] = 0;
        kernels->idct_pair[c->n](c->coefficients[at], c->quant, out, c->stride);
        return;
    }
    const uint64_t ones = 0x0101010101010101;
    uint64_t left = ones * dc_sample(c->dc[at], c->quant[0]);
    uint64_t right = ones * dc_sample(c->dc[at + 1], c->quant[0]);
    for (int y = 0; y < c->n; y++, out += c->stride) {
        memcpy(out, &left, 8);
        memcpy(out + c->n, &right, 8);
    }
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
    return kernels->slow && denominator < (frame->sof == SOF2 ? 2 : 8);
}

Status jpeg_decode(Scratch *scratch, const uint8_t *bytes, size_t size, int denominator,
                   const Window *window, Planes *planes)
{
    Frame frame;
    Scan scan;
    Status status = first_scan(&frame, bytes, size, &scan);
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
    if (!take_memory(scratch, &frame, n))
        return NO_MEMORY;
    describe(&frame, n, planes);
    status = (frame.sof == SOF2 ? decode_progressive : decode_sequential)(scratch, &frame, &scan);
    if (status)
        scratch_drop(scratch, COEFFICIENTS);
    return status;
}
