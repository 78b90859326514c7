/* libFuzzer's way into the PNG decoder: any bytes as a zlib stream, or as a file. Built and run by test_png.py. */
#include <stdlib.h>
#include <string.h>

#include "png.c"

static Scratch *scratch;

static void read_stream(const uint8_t *data, size_t size)
{
    enum { MOST = 1 << 16 };
    uint8_t *bytes = malloc(size + 16), *out = malloc(MOST + MOST_WRITTEN);
    memcpy(bytes, data, size);
    memset(bytes + size, 0, 16);
    kernels->inflate(bytes, size, out, MOST);
    free(bytes);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!scratch) {
        kernels_choose();
        scratch = scratch_new();
    }
    Header header;
    Interleaved pixels;
    if (!size)
        return 0;
    if (data[0] & 1)
        read_stream(data + 1, size - 1);
    else if (!png_header(data + 1, size - 1, &header))
        png_decode(scratch, data + 1, size - 1, 1 + (data[0] >> 1) % header.height, &pixels);
    return 0;
}
