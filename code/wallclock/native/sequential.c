/* Sequential JPEGs (T.81, annex F.2): a scan of all components. Blocks become samples at once, two
 * neighbours at a time; of blocks on whose AC coefficients no sample depends only DC is decoded. */
#include <string.h>

#include "jpeg.h"

/* Two MCUs of one component: rows of up to four blocks, and where each block ended. */
typedef struct {
    _Alignas(32) int16_t blocks[2][4][BLOCK];
    uint8_t ends[2][4];
} Strip;

typedef struct { const HuffmanTable *dc, *ac; } Tables;

/* What the table of several symbols has no answer to: one symbol at a time. */
INLINE bool skip_symbol(Bits *bits, const Tables *tables, int *k, int *sum)
{
    if (*k == 0) {
        int difference;
        if (!decode_dc(bits, tables->dc, &difference))
            return false;
        *sum += difference;
        *k = 1;
        return true;
    }
    int run, value;
    unsigned ended = 0;
    if (!long_symbol(bits, tables->ac, &run, &value, &ended) || ended > 1)
        return false;
    *k = ended ? BLOCK : *k + run + 1;
    return *k <= BLOCK;
}

/* Blocks of which DC is wanted alone: sums[i] is the sum of DC's differences in blocks 0 to i. A
 * lookup drops as many symbols as its bits hold: 2.4 a block, where one symbol a time took 7 in
 * photos. That a block ends is no branch, which half of the time was mispredicted: 16 -> 10 ns. */
INLINE bool skip_blocks(Bits *bits, const Tables *tables, int n, int *sums)
{
    const int32_t *skips = tables[0].dc->skips;
    refill(bits);
    uint64_t next_bits = bits->buffer >> (64 - SKIP_LOOKUP);
    for (int i = 0, k = 0, sum = 0; i < n;) {
        int32_t skip = skips[next_bits], ends = skip >> 31;
        int next = k + (skip >> SKIP_ADVANCE & 127);
        if (UNLIKELY(next >= BLOCK)) {
            next = k;
            if (!skip_symbol(bits, &tables[i], &next, &sum))
                return false;
            ends = -(next == BLOCK);
        } else {
            drop(bits, skip & 63);
            sum += skip << 1 >> (SKIP_DIFFERENCE + 1);
        }
        /* Before refilling: that is not waited for. */
        next_bits = bits->buffer >> (64 - SKIP_LOOKUP);
        refill(bits);
        sums[i] = sum;
        const int32_t *here = tables[i].ac->skips, *behind = tables[i + 1].dc->skips;
        skips = here + ((behind - here) & ends);
        k = next & ~ends;
        i -= ends;
    }
    return true;
}

/* What the table of pairs has no answer to. */
INLINE bool decode_ac(Bits *bits, const HuffmanTable *table, int16_t *block, int *k, bool *ended)
{
    int run, value;
    unsigned eob_run = 0;
    if (!long_symbol(bits, table, &run, &value, &eob_run) || eob_run > 1)
        return false;
    *ended = eob_run;
    if (*ended)
        return true;
    *k += run + 1;
    if (*k > BLOCK)
        return false;
    block[natural_order[*k - 1]] = (int16_t)value;
    return true;
}

/* Returns how many coefficients there are up to the last one that is not 0; 0: irregular. Two
 * coefficients a lookup: 72 -> 55 us for a thumbnail. One for a block of DC alone: 38 -> 31 us. */
INLINE int decode_block(Bits *bits, const HuffmanTable *dc, const HuffmanTable *ac,
                        const int32_t *skips, int *prediction, int16_t *block)
{
    int difference, k = 1;
    refill(bits);
    int32_t skip = skips ? skips[bits->buffer >> (64 - SKIP_LOOKUP)] : 0;
    if (skip < 0 && (skip >> SKIP_ADVANCE & 127) == 1) {
        drop(bits, skip & 63);
        *prediction += skip << 1 >> (SKIP_DIFFERENCE + 1);
        block[0] = (int16_t)*prediction;
        return 1;
    }
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

/* A run of MCUs of which no sample needs more than DC: components 0 to `components`. */
enum { MOST_BLOCKS = 6, MOST_SKIPPED = MOST_UNCHECKED / MOST_BLOCKS };
typedef struct {
    int components, blocks;                 /* of one MCU */
    Tables tables[MOST_SKIPPED * MOST_BLOCKS + 1];
    int sums[MOST_SKIPPED * MOST_BLOCKS];
} Run;

static void run_begin(Run *run, const Scan *scan, int components)
{
    run->components = components;
    run->blocks = 0;
    for (int i = 0; i < components; i++)
        for (int n = scan->components[i]->h * scan->components[i]->v; n--;)
            run->tables[run->blocks++] = (Tables){scan->dc[i], scan->ac[i]};
    for (int i = run->blocks; run->blocks && i <= MOST_SKIPPED * MOST_BLOCKS; i++)
        run->tables[i] = run->tables[i - run->blocks];
}

INLINE bool skip_mcus(Bits *bits, Scan *scan, Run *run, int x, int y, int n)
{
    if (!skip_blocks(bits, run->tables, n * run->blocks, run->sums))
        return false;
    const int *sum = run->sums;
    for (int end = x + n, before = 0; x < end; x++) {
        for (int i = 0; i < run->components; i++) {
            const Component *c = scan->components[i];
            int dc = scan->predictions[i];
            uint8_t *out = samples_of(c, x * c->h, y * c->v);
            for (int v = 0; v < c->v; v++, out += c->stride) {
                for (int h = 0; h < c->h; h++, before = *sum++) {
                    dc += *sum - before;
                    scan->beyond |= dc_beyond(c, dc);
                    if (c->n == 1)
                        out[h] = dc_sample(c, dc);
                }
            }
            scan->predictions[i] = dc;
        }
    }
    return true;
}

/* The blocks of one component in MCU `m` of a strip. */
INLINE bool decode_mcu(Bits *bits, Scan *scan, int i, Strip *strip, int m)
{
    const Component *c = scan->components[i];
    int dc = scan->predictions[i];
    for (int v = 0; v < c->v; v++) {
        for (int at = m * c->h; at < (m + 1) * c->h; at++) {
            int end = decode_block(bits, scan->dc[i], scan->ac[i], scan->skips[i], &dc,
                                   strip->blocks[v][at]);
            strip->ends[v][at] = (uint8_t)end;
            scan->beyond |= dc_beyond(c, dc);
            if (!end)
                return false;
        }
    }
    scan->predictions[i] = dc;
    return true;
}

/* Two MCUs, or the last one of a row; `run`: of the components that are skipped. */
INLINE bool decode_strip(Bits *bits, Scan *scan, Run *run, Strip *strips, int x, int y, int mcus)
{
    for (int m = 0; m < mcus; m++) {
        if (run->components && !skip_mcus(bits, scan, run, x + m, y, 1))
            return false;
        for (int i = run->components; i < scan->n; i++)
            if (!decode_mcu(bits, scan, i, &strips[i], m))
                return false;
    }
    for (int i = run->components; i < scan->n; i++) {
        const Component *c = scan->components[i];
        for (int v = 0; v < c->v; v++)
            put_blocks(c, strips[i].blocks[v], strips[i].ends[v], mcus * c->h,
                       samples_of(c, x * c->h, y * c->v + v));
    }
    return true;
}

INLINE Status decode_mcus(Scan *scan, int y, int x, int n)
{
    const Frame *frame = scan->frame;
    Strip strips[MAX_COMPONENTS];
    Run skipped, outside;
    int end = x + n, from = frame->first_column, to = frame->end_column;
    if (y < frame->first_row || y >= frame->end_row)
        from = to = end;
    memset(strips, 0, sizeof strips[0] * (size_t)scan->n);
    run_begin(&skipped, scan, scan->components[scan->n - 1]->n == 1 ? scan->n :
                              scan->components[0]->n == 1);
    if (!frame->is_whole)
        run_begin(&outside, scan, scan->n);
    Bits bits = scan->bits;
    for (int mcus; x < end; x += mcus) {
        bool inside = x >= from && x < to, done;
        int most = (inside ? to : x < from ? from : end) - x;
        most = most < end - x ? most : end - x;
        mcus = inside && skipped.components < scan->n ? 2 : MOST_SKIPPED;
        mcus = mcus < most ? mcus : most;
        if (inside && skipped.components < scan->n)
            done = decode_strip(&bits, scan, &skipped, strips, x, y, mcus);
        else
            done = skip_mcus(&bits, scan, inside ? &skipped : &outside, x, y, mcus);
        if (!done || bits.at > bits.end + 8)
            return IRREGULAR;
    }
    scan->bits = bits;
    return scan->beyond ? OUT_OF_RANGE : DECODED;
}

static Status plain_row(Scan *scan, int y, int x, int n)
{
    return decode_mcus(scan, y, x, n);
}

#ifdef __x86_64__
/* Shifts by a variable number of bits are one instruction there. */
__attribute__((target("avx2,bmi2"))) static Status bmi2_row(Scan *scan, int y, int x, int n)
{
    return decode_mcus(scan, y, x, n);
}
#else
#define bmi2_row plain_row
#endif

Status decode_sequential(Scratch *scratch, Frame *frame, Scan *scan)
{
    int extras[MAX_COMPONENTS];
    if (scan->n != frame->n_components)
        return OTHER_PROCESS;
    if (scan->first != 0 || scan->last != BLOCK - 1 || scan->high || scan->low)
        return IRREGULAR;
    for (int i = 0; i < scan->n; i++)
        extras[i] = scan->components[i]->n == 1 ? SKIPS :
                    PAIRS | (frame->is_whole ? SKIPS_IF_SHARED : SKIPS);
    Status status = scan_tables(scratch, frame, scan, true, true, extras);
    if (!status)
        status = decode_scan(scratch, frame, scan, kernels->bmi2 ? bmi2_row : plain_row);
    Scan behind;
    if (!status)
        status = next_scan(frame, &behind);
    return !status && behind.n ? IRREGULAR : status;
}
