/* Sequential JPEGs (T.81, annex F.2): a scan of all components. Blocks become samples at once, two
 * neighbours at a time; of blocks on whose AC coefficients no sample depends only DC is decoded. */
#include <string.h>

#include "jpeg.h"

/* Two MCUs of one component: rows of up to four blocks, and where each block ended. */
typedef struct {
    _Alignas(32) int16_t blocks[2][4][BLOCK];
    uint8_t ends[2][4];
} Strip;

/* DC of a block, and how far the AC coefficients behind it go: one symbol at a time, where the
 * table of several has no answer. */
INLINE bool skip_symbol(Bits *bits, const HuffmanTable *table, int *k)
{
    int symbol = decode_symbol(bits, table), size = symbol & 15;
    if (symbol < 0 || (!size && symbol && symbol != 0xF0))
        return false;
    drop(bits, size);
    *k = symbol ? *k + (symbol >> 4) + 1 : BLOCK;
    return *k <= BLOCK;
}

/* A block of which DC is wanted alone. A lookup drops as many symbols as its bits hold: 2.4
 * lookups a block, where one symbol a time took 7 in photos. */
INLINE bool skip_block(Bits *bits, const HuffmanTable *dc, const HuffmanTable *ac, int *prediction)
{
    const Skip *skips = dc->skips;
    for (int k = 0; k < BLOCK;) {
        refill(bits);
        Skip skip = skips[bits->buffer >> (64 - SKIP_LOOKUP)];
        int next = k + (skip.advance & ~END), end = skip.advance >> 7;
        if (LIKELY(skip.bits && next <= BLOCK - end)) {
            drop(bits, skip.bits);
            *prediction += skip.difference;
            k = end ? BLOCK : next;
        } else if (k == 0) {
            int difference;
            if (!decode_dc(bits, dc, &difference))
                return false;
            *prediction += difference;
            k = 1;
        } else if (!skip_symbol(bits, ac, &k)) {
            return false;
        }
        skips = ac->skips;
    }
    return true;
}

/* One AC coefficient, or the end of the block: what the table of pairs has no answer to. */
INLINE bool decode_ac(Bits *bits, const HuffmanTable *table, int16_t *block, int *k, bool *ended)
{
    int symbol = decode_symbol(bits, table), size = symbol & 15;
    *ended = symbol == 0;
    if (symbol <= 0)
        return symbol == 0;
    *k += symbol >> 4;
    if ((!size && symbol != 0xF0) || *k >= BLOCK)
        return false;
    if (size)
        block[natural_order[*k]] = (int16_t)extend(take(bits, size), size);
    (*k)++;
    return true;
}

/* Returns how many coefficients there are up to the last one that is not 0; 0: irregular. Two
 * coefficients a lookup: 72 -> 55 us for a thumbnail. */
INLINE int decode_block(Bits *bits, const HuffmanTable *dc, const HuffmanTable *ac, int *prediction,
                        int16_t *block)
{
    int difference, k = 1;
    refill(bits);
    if (!decode_dc(bits, dc, &difference))
        return 0;
    *prediction += difference;
    block[0] = (int16_t)*prediction;
    while (k < BLOCK) {
        bool ended;
        if (bits->count < 32)
            refill(bits);
        Pair pair = ac->pairs[bits->buffer >> (64 - PAIR_LOOKUP)];
        if (UNLIKELY(!pair.bits || k + pair.advance >= BLOCK)) {
            if (!decode_ac(bits, ac, block, &k, &ended))
                return 0;
        } else {
            block[natural_order[k + pair.at_first]] = pair.first;
            block[natural_order[k + pair.at_second]] = pair.second;
            k += pair.advance;
            ended = pair.bits & END;
            drop(bits, pair.bits & ~END);
        }
        if (ended)
            break;
    }
    return k;
}

INLINE uint8_t *samples_of(const Component *c, int x, int y)
{
    return c->samples + (ptrdiff_t)y * c->n * c->stride + (ptrdiff_t)x * c->n;
}

/* The blocks of one component in MCU `m` of a strip, at block x, y of the image. */
INLINE bool decode_component(Bits *bits, Scan *scan, int i, Strip *strip, int m, bool wanted, int x,
                             int y)
{
    const Component *c = scan->components[i];
    for (int v = 0; v < c->v; v++) {
        for (int h = 0; h < c->h; h++) {
            int *prediction = &scan->predictions[i];
            if (c->n == 1 || !wanted) {
                if (!skip_block(bits, scan->dc[i], scan->ac[i], prediction))
                    return false;
                if (c->n == 1)
                    *samples_of(c, x + h, y + v) = dc_sample(c, *prediction);
            } else {
                int at = m * c->h + h;
                int end = decode_block(bits, scan->dc[i], scan->ac[i], prediction,
                                       strip->blocks[v][at]);
                strip->ends[v][at] = (uint8_t)end;
                if (!end)
                    return false;
            }
            scan->beyond |= dc_beyond(c, *prediction);
        }
    }
    return true;
}

INLINE Status decode_mcus(Frame *frame, Scan *scan, int y, int x, int n)
{
    Strip strips[MAX_COMPONENTS];
    memset(strips, 0, sizeof strips[0] * (size_t)scan->n);
    Bits bits = scan->bits;
    for (int end = x + n; x < end; x += 2) {
        int mcus = end - x < 2 ? 1 : 2;
        bool wanted = mcus_wanted(frame, x, x + mcus, y);
        for (int m = 0; m < mcus; m++)
            for (int i = 0; i < scan->n; i++) {
                const Component *c = scan->components[i];
                if (!decode_component(&bits, scan, i, &strips[i], m, wanted, (x + m) * c->h, y * c->v))
                    return IRREGULAR;
            }
        if (bits.at > bits.end + 8)
            return IRREGULAR;
        for (int i = 0; i < scan->n && wanted; i++) {
            const Component *c = scan->components[i];
            for (int v = 0; v < c->v && c->n > 1; v++)
                if (!put_blocks(c, strips[i].blocks[v], strips[i].ends[v], mcus * c->h,
                                samples_of(c, x * c->h, y * c->v + v)))
                    return OUT_OF_RANGE;
        }
    }
    scan->bits = bits;
    return scan->beyond ? OUT_OF_RANGE : DECODED;
}

static Status decode_row(Frame *frame, Scan *scan, int y, int x, int n)
{
    return decode_mcus(frame, scan, y, x, n);
}

#ifdef __x86_64__
/* Shifts by a variable number of bits are one instruction there. */
__attribute__((target("avx2,bmi2"))) static Status decode_row_bmi2(Frame *frame, Scan *scan, int y,
                                                                   int x, int n)
{
    return decode_mcus(frame, scan, y, x, n);
}
#else
#define decode_row_bmi2 decode_row
#endif

Status decode_sequential(Scratch *scratch, Frame *frame, Scan *scan)
{
    int extras[MAX_COMPONENTS];
    if (scan->n != frame->n_components || scan->first != 0 || scan->last != BLOCK - 1 ||
        scan->high || scan->low)
        return IRREGULAR;
    for (int i = 0; i < scan->n; i++)
        extras[i] = (scan->components[i]->n > 1 ? PAIRS : SKIPS) | (frame->is_whole ? 0 : SKIPS);
    Status status = scan_tables(scratch, frame, scan, true, true, extras);
    if (!status)
        status = decode_scan(scratch, frame, scan, kernels->bmi2 ? decode_row_bmi2 : decode_row);
    Scan behind;
    if (!status)
        status = next_scan(frame, &behind);
    return !status && behind.n ? IRREGULAR : status;
}
