/* Sequential JPEGs (T.81, annex F.2): one scan of all components. Blocks become samples at once,
 * two neighbours at a time; of those on whose AC coefficients no sample depends DC alone is
 * decoded. */
#include <string.h>

#include "jpeg.h"

/* What a table of several symbols has no answer to. Returns the position in the block behind the
 * symbol; END; or 0: irregular. */
INLINE int one_symbol(Bits *bits, const HuffmanTables *tables, int k, int *value)
{
    int run;
    unsigned eob_run = 0;
    if (k == 0)
        return next_symbol(bits, &tables->codes[0], &run, value, &eob_run);
    if (!next_symbol(bits, &tables->codes[1], &run, value, &eob_run) || eob_run > 1)
        return 0;
    if (eob_run)
        return END;
    return k + run + 1 <= BLOCK ? k + run + 1 : 0;
}

/* Two coefficients a lookup: 72 -> 55 us for a thumbnail. */
INLINE bool decode_block(Bits *bits, const HuffmanTables *tables, const Component *c, size_t at,
                         int *dc)
{
    int16_t *block = c->coefficients[at];
    int k = 1, difference;
    refill(bits);
    if (!one_symbol(bits, tables, 0, &difference))
        return false;
    *dc += difference;
    c->dc[at] = block[0] = (int16_t)*dc;
    for (bool ended = false; !ended && k < BLOCK;) {
        if (bits->count < 32)
            refill(bits);
        Pair pair = tables->pairs[bits->buffer >> (64 - PAIR_LOOKUP)];
        if (UNLIKELY(!pair.bits || k + pair.advance >= BLOCK)) {
            int value, next = one_symbol(bits, tables, k, &value);
            if (!next)
                return false;
            if (next == END)
                break;
            k = next;
            block[natural_order[k - 1]] = (int16_t)value;
        } else {
            block[natural_order[k + pair.at_first]] = pair.first;
            block[natural_order[k + pair.at_second]] = pair.second;
            k += pair.advance;
            ended = pair.bits & END;
            drop(bits, pair.bits & ~END);
        }
    }
    c->known[at] = k > 1;
    return true;
}

/* Neighbouring MCUs of which DC is wanted alone, of components 0 to `components`. */
enum { MOST_BLOCKS = 6, MOST_SKIPPED = MOST_UNCHECKED / MOST_BLOCKS };
typedef struct {
    int components, blocks;                 /* of one MCU */
    const HuffmanTables *tables[MOST_UNCHECKED + 1];
    int sums[MOST_UNCHECKED];               /* of DC's differences in blocks 0 to i */
} Run;

static void run_begin(Run *run, const Scan *scan, int components)
{
    run->components = components;
    run->blocks = 0;
    for (int i = 0; i < components; i++)
        for (int n = scan->components[i]->h * scan->components[i]->v; n--;)
            run->tables[run->blocks++] = scan->tables[i];
    for (int i = run->blocks; components && i <= MOST_UNCHECKED; i++)
        run->tables[i] = run->tables[i - run->blocks];
}

/* A lookup drops as many symbols as its bits hold: 2.4 a block, where one symbol a time took 7 in
 * photos. That a block ends is no branch, which half of the time was mispredicted: 16 -> 10 ns. */
INLINE bool skip_blocks(Bits *bits, Run *run, int n)
{
    const int32_t *skips = run->tables[0]->skips[0];
    refill(bits);
    uint64_t next_bits = bits->buffer >> (64 - SKIP_LOOKUP);
    for (int i = 0, k = 0, sum = 0; i < n;) {
        int32_t skip = skips[next_bits], ends = skip >> 31;
        int next = k + (skip >> SKIP_ADVANCE & 127);
        if (UNLIKELY(next >= BLOCK)) {
            int value;
            next = one_symbol(bits, run->tables[i], k, &value);
            if (!next)
                return false;
            sum += k ? 0 : value;
            ends = -(next >= BLOCK);
        } else {
            drop(bits, skip & 63);
            sum += skip << 1 >> (SKIP_DIFFERENCE + 1);
        }
        /* Before refilling: that is not waited for. */
        next_bits = bits->buffer >> (64 - SKIP_LOOKUP);
        refill(bits);
        run->sums[i] = sum;
        const int32_t *here = run->tables[i]->skips[1], *behind = run->tables[i + 1]->skips[0];
        skips = here + ((behind - here) & ends);
        k = next & ~ends;
        i -= ends;
    }
    return true;
}

INLINE bool skip_mcus(Bits *bits, Scan *scan, Run *run, int y, int x, int end)
{
    for (int n; x < end; x += n) {
        n = end - x < MOST_SKIPPED ? end - x : MOST_SKIPPED;
        if (!skip_blocks(bits, run, n * run->blocks) || overrun(bits))
            return false;
        const int *sum = run->sums;
        for (int mcu = x, before = 0; mcu < x + n; mcu++) {
            for (int i = 0; i < run->components; i++) {
                const Component *c = scan->components[i];
                uint8_t *out = samples_of(c, mcu * c->h, y * c->v);
                int dc = scan->predictions[i];
                for (int v = 0; v < c->v; v++, out += c->stride) {
                    for (int h = 0; h < c->h; h++, before = *sum++) {
                        dc += *sum - before;
                        scan->beyond |= dc_beyond(c, dc);
                        if (c->n == 1)
                            out[h] = dc_sample((int16_t)dc, c->quant[0]);
                    }
                }
                scan->predictions[i] = dc;
            }
        }
    }
    return true;
}

/* The blocks of component i in the first or second of two MCUs. */
INLINE bool decode_mcu(Bits *bits, Scan *scan, int i, int second)
{
    const Component *c = scan->components[i];
    int dc = scan->predictions[i];
    for (int v = 0; v < c->v; v++) {
        size_t at = (size_t)(v * c->stored_wide + second * c->h);
        for (size_t end = at + (size_t)c->h; at < end; at++) {
            if (!decode_block(bits, scan->tables[i], c, at, &dc))
                return false;
            scan->beyond |= dc_beyond(c, dc);
        }
    }
    scan->predictions[i] = dc;
    return true;
}

/* MCUs of which samples are wanted; `skipped`: of the components that need DC alone. Huffman
 * decoding waits for itself: a processor makes samples of two MCUs meanwhile, which gains 5 %. */
INLINE bool decode_mcus(Bits *bits, Scan *scan, Run *skipped, int y, int x, int end)
{
    if (skipped->components == scan->n)
        return skip_mcus(bits, scan, skipped, y, x, end);
    for (; x < end; x += 2) {
        int mcus = end - x < 2 ? 1 : 2;
        for (int m = 0; m < mcus; m++) {
            if (skipped->components && !skip_mcus(bits, scan, skipped, y, x + m, x + m + 1))
                return false;
            for (int i = skipped->components; i < scan->n; i++)
                if (!decode_mcu(bits, scan, i, m))
                    return false;
        }
        for (int i = skipped->components; i < scan->n; i++) {
            const Component *c = scan->components[i];
            for (int v = 0; v < c->v; v++)
                for (int h = 0; h < mcus * c->h; h += 2)
                    put_pair(c, (size_t)(v * c->stored_wide + h),
                             samples_of(c, x * c->h + h, y * c->v + v));
        }
        if (overrun(bits))
            return false;
    }
    return true;
}

static int between(int low, int x, int high)
{
    return x < low ? low : x > high ? high : x;
}

INLINE Status decode_row(Scan *scan, int y, int x, int n, bool bmi2)
{
    (void)bmi2;
    const Frame *frame = scan->frame;
    Run skipped, outside;
    bool wanted = y >= frame->first_row && y < frame->end_row;
    int end = x + n, from = wanted ? between(x, frame->first_column, end) : end;
    int to = wanted ? between(from, frame->end_column, end) : end;
    run_begin(&skipped, scan, scan->components[scan->n - 1]->n == 1 ? scan->n :
                              scan->components[0]->n == 1);
    if (!frame->is_whole)
        run_begin(&outside, scan, scan->n);
    Bits bits = scan->bits;
    if (!skip_mcus(&bits, scan, &outside, y, x, from) ||
        !decode_mcus(&bits, scan, &skipped, y, from, to) ||
        !skip_mcus(&bits, scan, &outside, y, to, end))
        return IRREGULAR;
    scan->bits = bits;
    return scan->beyond ? OUT_OF_RANGE : DECODED;
}

PLAIN_ROW(decode_row)
BMI2_ROW(decode_row)

Status decode_sequential(Scratch *scratch, Frame *frame, Scan *scan)
{
    if (scan->n != frame->n_components)
        return OTHER_PROCESS;
    if (scan->first != 0 || scan->last != BLOCK - 1 || scan->high || scan->low)
        return IRREGULAR;
    Status status = scan_tables(scratch, frame, scan);
    for (int i = 0; i < scan->n && !status; i++) {
        if (scan->components[i]->n > 1)
            need_pairs(scan->tables[i]);
        if (scan->components[i]->n == 1 || !frame->is_whole)
            need_skips(scan->tables[i]);
    }
    if (!status)
        status = decode_scan(scratch, frame, scan, BEST(decode_row));
    Scan behind;
    if (!status)
        status = next_scan(frame, &behind);
    return !status && behind.n ? IRREGULAR : status;
}
