/* Of the parts that are not there yet: every file is handed over. Goes when they are. */
#include "native.h"

#include <stdlib.h>

#define WEAK __attribute__((weak))

WEAK const char *status_name(Status status)
{
    return status == DECODED ? "decoded" : "not decoded here";
}

WEAK Status jpeg_header(const uint8_t *bytes, size_t size, Header *header)
{
    (void)bytes, (void)size, (void)header;
    return NOT_JPEG;
}

WEAK Status jpeg_decode(Scratch *scratch, const uint8_t *bytes, size_t size, int denominator,
                        const Window *window, Planes *planes)
{
    (void)scratch, (void)bytes, (void)size, (void)denominator, (void)window, (void)planes;
    return OTHER_PROCESS;
}

WEAK bool source_of_planes(Scratch *scratch, const Planes *planes, const Window *window,
                           Source *source)
{
    (void)scratch, (void)planes, (void)window, (void)source;
    return false;
}

WEAK bool source_of_pixels(Scratch *scratch, const Interleaved *pixels, int width, int height,
                           const Window *window, Source *source)
{
    (void)scratch, (void)pixels, (void)width, (void)height, (void)window, (void)source;
    return false;
}

static const Kernels plain = {.name = "generic"};
WEAK const Kernels *kernels = &plain;

WEAK void kernels_choose(void)
{
}

WEAK void huffman_cache_free(struct HuffmanCache *tables)
{
    free(tables);
}
