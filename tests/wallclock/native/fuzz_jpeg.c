/* libFuzzer's way into the decoder: any bytes as a JPEG, at any scale, all of it or a part. Built
 * and run by test_jpeg.py. */
#include <stdlib.h>

#include "native.h"

static Scratch *scratch;

static void read_rows(const Planes *planes, const Window *window)
{
    Source source;
    const uint8_t *rgb[3];
    if (!source_of_planes(scratch, planes, window, &source))
        return;
    for (int y = window->top; y < window->top + window->height; y++)
        source.row(&source, y, rgb);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!scratch) {
        kernels_choose();
        scratch = scratch_new();
    }
    Header header;
    if (size < 2 || jpeg_header(data + 2, size - 2, &header))
        return 0;
    int denominator = 1 << (data[0] & 3);
    int width = (header.width + denominator - 1) / denominator;
    int height = (header.height + denominator - 1) / denominator;
    Window window = {0, 0, width, height};
    bool part = data[0] & 4;
    if (part) {
        window.left = width * (data[0] >> 4) / 16;
        window.top = height * (data[1] >> 4) / 16;
        window.width = 1 + (width - window.left - 1) * (data[1] & 15) / 15;
        window.height = 1 + (height - window.top - 1) * (data[1] & 7) / 7;
    }
    Planes planes;
    if (!jpeg_decode(scratch, data + 2, size - 2, denominator, part ? &window : NULL, &planes))
        read_rows(&planes, &window);
    return 0;
}
