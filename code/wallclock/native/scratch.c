/* Memory that a thread keeps from image to image. */
#include "native.h"

#include <stdlib.h>

enum { ALIGNMENT = 64, READABLE_BEHIND = 64 };
/* What a thread keeps when it has done a chunk of images; an image may take more. */
static const size_t KEPT_BYTES = (size_t)32 << 20;

Scratch *scratch_new(void)
{
    return calloc(1, sizeof(Scratch));
}

static void forget(Scratch *scratch, int use)
{
    free(scratch->blocks[use].allocated);
    scratch->blocks[use].allocated = scratch->blocks[use].memory = NULL;
    scratch->blocks[use].size = 0;
}

void scratch_free(Scratch *scratch)
{
    if (!scratch)
        return;
    for (int use = 0; use < N_BLOCKS; use++)
        forget(scratch, use);
    huffman_cache_free(scratch->tables);
    weight_cache_free(scratch->weights);
    free(scratch);
}

void *scratch_take(Scratch *scratch, Use use, size_t size)
{
    if (scratch->blocks[use].memory && scratch->blocks[use].size >= size)
        return scratch->blocks[use].memory;
    forget(scratch, use);
    if (size > SIZE_MAX / 2)
        return NULL;
    size += size / 8;             /* so that images that differ a little do not move it each time */
    /* Large blocks of calloc's are the system's zero pages, which cost nothing until they are used. */
    uint8_t *allocated = calloc(1, size + ALIGNMENT + READABLE_BEHIND);
    if (!allocated)
        return NULL;
    scratch->blocks[use].allocated = allocated;
    scratch->blocks[use].memory = allocated + ALIGNMENT - (uintptr_t)allocated % ALIGNMENT;
    scratch->blocks[use].size = size;
    return scratch->blocks[use].memory;
}

void scratch_trim(Scratch *scratch)
{
    for (;;) {
        size_t total = 0;
        int largest = 0;
        for (int use = 0; use < N_BLOCKS; use++) {
            total += scratch->blocks[use].size;
            if (scratch->blocks[use].size > scratch->blocks[largest].size)
                largest = use;
        }
        if (total <= KEPT_BYTES)
            return;
        forget(scratch, largest);
    }
}
