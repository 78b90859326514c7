/* An image as rows of red, green and blue: upsampling and colours of decoded planes as in
 * libjpeg-turbo (jdsample.c, jdcolor.c), and the pixels of other decoders, taken apart.
 */
#include "native.h"

#include <string.h>

/* A buffer of one row: `PADDING` bytes before column 0 and behind the last, since kernels write
 * whole vectors and the triangle filter looks at a neighbour. */
enum { PADDING = 64, N_BUFFERS = 5 };

static size_t buffer_size(int width)
{
    return ((size_t)width + 2 * PADDING + 63) / 64 * 64;
}

static uint8_t *buffer(const Source *source, int i)
{
    return source->memory + (size_t)i * buffer_size(source->width) + PADDING;
}

static const uint8_t *plane_row(const Plane *plane, int y)
{
    return plane->samples + y * plane->stride;
}

/* The rows of a plane of half the height that a pixel row lies between, the edge repeated. */
static void neighbours(const Plane *plane, int y, const uint8_t **near, const uint8_t **far)
{
    int next = y / 2 + (y % 2 ? 1 : -1);
    next = next < 0 ? 0 : next < plane->height ? next : plane->height - 1;
    *near = plane_row(plane, y / 2);
    *far = plane_row(plane, next);
}

static void row_of_samples(Source *source, int y, const uint8_t *rgb[3])
{
    const Planes *image = source->image;
    for (int i = 0; i < 3; i++)
        rgb[i] = plane_row(&image->planes[image->n_planes == 1 ? 0 : i], y);
}

static void convert(Source *source, int y, const uint8_t *cb, const uint8_t *cr,
                    const uint8_t *rgb[3])
{
    const Planes *image = source->image;
    int x = source->window.left;
    for (int i = 0; i < 3; i++)
        rgb[i] = buffer(source, i);
    kernels->rgb_of_ycc(plane_row(&image->planes[0], y) + x, cb + x, cr + x, buffer(source, 0) + x,
                        buffer(source, 1) + x, buffer(source, 2) + x, source->window.width);
}

/* fullsize_upsample, h2v1_upsample, h2v2_upsample and int_upsample: samples, perhaps repeated. */
static void row_of_repeated_chroma(Source *source, int y, const uint8_t *rgb[3])
{
    const Planes *image = source->image;
    const uint8_t *chroma[2];
    for (int i = 0; i < 2; i++) {
        chroma[i] = plane_row(&image->planes[1 + i], y / image->down);
        if (image->across == 2) {
            uint8_t *repeated = buffer(source, 3 + i);
            for (int x = 0; x < image->planes[1 + i].width; x++)
                repeated[2 * x] = repeated[2 * x + 1] = chroma[i][x];
            chroma[i] = repeated;
        }
    }
    convert(source, y, chroma[0], chroma[1], rgb);
}

/* h1v2_fancy_upsample. */
static void row_between_rows(Source *source, int y, const uint8_t *rgb[3])
{
    const Planes *image = source->image;
    for (int i = 0; i < 2; i++) {
        const uint8_t *near, *far;
        uint8_t *blended = buffer(source, 3 + i);
        neighbours(&image->planes[1 + i], y, &near, &far);
        for (int x = 0; x < source->width; x++)
            blended[x] = (uint8_t)((3 * near[x] + far[x] + (y % 2 ? 2 : 1)) >> 2);
    }
    convert(source, y, buffer(source, 3), buffer(source, 4), rgb);
}

/* h2v1_fancy_upsample and h2v2_fancy_upsample: first 3 near + far in each column, then the same
 * across. With one row, near and far are the same, and the filter's sums four times its samples. */
static void row_between_columns(Source *source, int y, const uint8_t *rgb[3])
{
    const Planes *image = source->image;
    int columns = image->planes[1].width;
    const Window *window = &source->window;
    int left = window->left / 2, right = (window->left + window->width + 1) / 2;
    int first = left > 0 ? left - 1 : 0, end = right < columns ? right + 1 : columns;
    int16_t *sums[2];
    for (int i = 0; i < 2; i++) {
        const Plane *plane = &image->planes[1 + i];
        const uint8_t *near = plane_row(plane, y), *far = near;
        if (image->down == 2)
            neighbours(plane, y, &near, &far);
        sums[i] = (int16_t *)(void *)buffer(source, 3 + i);
        kernels->column_sums(near + first, far + first, sums[i] + first, end - first);
        sums[i][-1] = sums[i][0];
        sums[i][columns] = sums[i][columns - 1];
    }
    for (int i = 0; i < 3; i++)
        rgb[i] = buffer(source, i);
    kernels->rgb_of_sums(plane_row(&image->planes[0], y) + 2 * left, sums[0] + left, sums[1] + left,
                         image->down == 2 ? 8 : 4, image->down == 2 ? 7 : 8,
                         buffer(source, 0) + 2 * left, buffer(source, 1) + 2 * left,
                         buffer(source, 2) + 2 * left, right - left);
}

/* Pixels where they are; of those at the image's end a copy, behind which can be read. */
static void row_of_pixels(Source *source, int y, const uint8_t *rgb[3])
{
    enum { READ_BEHIND = 64 };
    const Interleaved *image = source->image;
    ptrdiff_t last = (source->height - 1) * image->stride, at = y * image->stride;
    const uint8_t *row = image->pixels + at;
    int channels = image->channels, x = source->window.left;
    for (int i = 0; i < 3; i++)
        rgb[i] = buffer(source, channels == 1 ? 0 : i);
    if (channels > 1 && source->step == 1) {
        kernels->separate(row + x * channels, channels, buffer(source, 0) + x,
                          buffer(source, 1) + x, buffer(source, 2) + x, source->window.width);
        return;
    }
    if (at + READ_BEHIND > (last > 0 ? last : 0))
        row = memcpy(source->memory, row, (size_t)source->width * (size_t)channels);
    for (int i = 0; i < 3; i++)
        rgb[i] = row + (channels == 1 ? 0 : i);
}

/* Grey with a byte that is left out, or the numbers of a palette's colours. */
static void row_of_few_bytes(Source *source, int y, const uint8_t *rgb[3])
{
    const Interleaved *image = source->image;
    int x = source->window.left, n = source->window.width, channels = image->palette ? 3 : 1;
    const uint8_t *row = image->pixels + y * image->stride + x * image->channels;
    for (int i = 0; i < 3; i++)
        rgb[i] = buffer(source, channels == 1 ? 0 : i);
    for (int i = 0; i < channels; i++)
        for (int j = 0; j < n; j++) {
            uint8_t pixel = row[j * image->channels];
            buffer(source, i)[x + j] = image->palette ? image->palette[3 * pixel + i] : pixel;
        }
}

static bool prepare(Scratch *scratch, int width, int height, const Window *window, int step,
                    Source *source)
{
    source->step = step;
    source->width = width;
    source->height = height;
    source->window = window ? *window : (Window){0, 0, width, height};
    source->memory = scratch_take(scratch, ROWS, N_BUFFERS * buffer_size(width));
    return source->memory != NULL;
}

bool source_of_planes(Scratch *scratch, const Planes *planes, const Window *window, Source *source)
{
    source->image = planes;
    if (planes->colours != YCBCR)
        source->row = row_of_samples;
    else if (!planes->smooth || (planes->across == 1 && planes->down == 1))
        source->row = row_of_repeated_chroma;
    else
        source->row = planes->across == 2 ? row_between_columns : row_between_rows;
    return prepare(scratch, planes->width, planes->height, window, 1, source);
}

bool source_of_pixels(Scratch *scratch, const Interleaved *pixels, int width, int height,
                      const Window *window, Source *source)
{
    source->image = pixels;
    bool few = pixels->channels == 2 || pixels->palette;
    source->row = few ? row_of_few_bytes : row_of_pixels;
    return prepare(scratch, width, height, window, few ? 1 : pixels->channels, source);
}
