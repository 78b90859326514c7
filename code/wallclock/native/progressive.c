/* Progressive JPEGs (T.81, annex G). A bitmap per block says which AC coefficients are known, so
 * that a refinement scan takes a block's correction bits at once (2 times as fast as a walk along
 * its coefficients); scans of which no sample depends at this scale are passed over. */
#include <string.h>

#include "jpeg.h"

/* The bits of `from`, lowest first, at the places of the ones in `mask`. */
typedef uint64_t Deposit(uint64_t from, uint64_t mask);

static inline uint64_t deposit_plain(uint64_t from, uint64_t mask)
{
    uint64_t result = 0;
    for (; mask; mask &= mask - 1, from >>= 1)
        if (from & 1)
            result |= mask & -mask;
    return result;
}

/* ------------------------------------------------------------------ DC scans (G.1.2.1, G.2) */

INLINE int16_t *dc_of(const Component *c, int x, int y)
{
    return c->dc + (size_t)y * (size_t)c->padded_wide + x;
}

INLINE bool first_dc(Bits *bits, Scan *scan, int i, int16_t *dc)
{
    int difference;
    refill(bits);
    if (!decode_dc(bits, scan->dc[i], &difference))
        return false;
    scan->predictions[i] += difference;
    scan->beyond |= ((unsigned)scan->predictions[i] + 2048) >> 12;
    *dc = (int16_t)((unsigned)scan->predictions[i] << scan->low);
    return true;
}

INLINE bool next_dc(Bits *bits, const Scan *scan, int16_t *dc)
{
    if (bits->count < 1)
        refill(bits);
    *dc |= (int16_t)((bits->buffer >> 63) << scan->low);
    drop(bits, 1);
    return true;
}

INLINE Status dc_row(Scan *scan, int y, int x, int n, bool is_first)
{
    Bits bits = scan->bits;
    for (int end = x + n; x < end; x++) {
        for (int i = 0; i < scan->n; i++) {
            const Component *c = scan->components[i];
            int wide = scan->n > 1 ? c->h : 1, high = scan->n > 1 ? c->v : 1;
            for (int block = 0; block < wide * high; block++) {
                int16_t *dc = dc_of(c, x * wide + block % wide, y * high + block / wide);
                if (!(is_first ? first_dc(&bits, scan, i, dc) : next_dc(&bits, scan, dc)))
                    return IRREGULAR;
            }
        }
        if (bits.at > bits.end + 8)
            return IRREGULAR;
    }
    scan->bits = bits;
    return scan->beyond ? OUT_OF_RANGE : DECODED;
}

/* ------------------------------------------------------------------ first AC scans (G.1.2.2) */

INLINE bool next_symbol(Bits *bits, const HuffmanTable *table, int *run, int *value,
                        unsigned *eob_run)
{
    if (bits->count < 32)
        refill(bits);
    Symbol symbol = table->symbols[bits->buffer >> (64 - LOOKUP)];
    if (UNLIKELY(!symbol.bits))
        return long_symbol(bits, table, run, value, eob_run);
    drop(bits, symbol.bits);
    *run = symbol.advance - 1;
    *value = symbol.value;
    if (symbol.advance == END)
        *eob_run = 1;
    return true;
}

/* The band of one block: false if irregular. */
INLINE bool first_band(Bits *bits, const Scan *scan, int16_t *block, uint64_t *known,
                       unsigned *eob_run)
{
    uint64_t seen = *known;
    for (int k = scan->first; k <= scan->last; k++) {
        int run, value;
        if (!next_symbol(bits, scan->ac[0], &run, &value, eob_run))
            return false;
        if (*eob_run)
            break;
        k += run;
        if (k > scan->last)
            return false;
        block[natural_order[k]] = (int16_t)(value * (1 << scan->low));
        seen |= (uint64_t)(value != 0) << (63 - k);
    }
    *known = seen;
    return true;
}

INLINE Status first_ac(Scan *scan, int y, int x, int n)
{
    const Component *c = scan->components[0];
    size_t at = (size_t)y * (size_t)c->wide + (size_t)x;
    Bits bits = scan->bits;
    unsigned eob_run = scan->eob_run;
    for (size_t end = at + (size_t)n; at < end; at++) {
        if (eob_run) {
            size_t blocks = end - at < eob_run ? end - at : eob_run;
            eob_run -= (unsigned)blocks;
            at += blocks - 1;
            continue;
        }
        if (!first_band(&bits, scan, c->coefficients + at * BLOCK, &c->known[at], &eob_run))
            return IRREGULAR;
        eob_run -= eob_run > 0;
        if (bits.at > bits.end + 8)
            return IRREGULAR;
    }
    scan->bits = bits;
    scan->eob_run = eob_run;
    return DECODED;
}

/* ------------------------------------------------------------------ refining AC scans (G.1.2.3) */

/* A correction bit for each coefficient in `mask`; those with a 1 grow by `step`. */
INLINE void correct(Bits *bits, int16_t *block, uint64_t mask, int step, Deposit *deposit)
{
    while (mask) {
        uint64_t now = mask;
        if (UNLIKELY(__builtin_popcountll(mask) > 56))
            now &= ~(uint64_t)0xFFFF;
        int n = __builtin_popcountll(now);
        if (bits->count < n)
            refill(bits);
        for (uint64_t ones = deposit(bits->buffer >> (64 - n), now); ones; ones &= ones - 1) {
            int16_t *value = block + natural_order[63 - __builtin_ctzll(ones)];
            *value = (int16_t)(*value + (*value < 0 ? -step : step));
        }
        drop(bits, n);
        mask &= ~now;
    }
}

INLINE bool refine_band(Bits *bits, const Scan *scan, int16_t *block, uint64_t *known,
                        uint64_t band, unsigned *eob_run, Deposit *deposit)
{
    int k = scan->first, step = 1 << scan->low;
    uint64_t seen = *known;
    while (!*eob_run && k <= scan->last) {
        int run, value;
        if (!next_symbol(bits, scan->ac[0], &run, &value, eob_run) || value < -1 || value > 1)
            return false;
        if (*eob_run)
            break;
        /* Zeros from k on: the one behind `run` others becomes `value`, or ends a run of 16. */
        uint64_t ahead = band & ~(uint64_t)0 >> k, zeros = ahead & ~seen;
        int beyond = __builtin_popcountll(zeros) - 1 - run;
        if (beyond < 0)
            return false;
        uint64_t target = deposit((uint64_t)1 << beyond, zeros);
        correct(bits, block, ahead & seen & -target, step, deposit);
        k = __builtin_clzll(target);
        block[natural_order[k]] = (int16_t)(value * step);
        seen |= value ? target : 0;
        k++;
    }
    if (*eob_run) {
        if (k < BLOCK)
            correct(bits, block, seen & band & ~(uint64_t)0 >> k, step, deposit);
        --*eob_run;
    }
    *known = seen;
    return true;
}

INLINE Status refine_ac(Scan *scan, int y, int x, int n, Deposit *deposit)
{
    const Component *c = scan->components[0];
    uint64_t band = ~(uint64_t)0 >> scan->first & ~(uint64_t)0 << (63 - scan->last);
    size_t at = (size_t)y * (size_t)c->wide + (size_t)x;
    Bits bits = scan->bits;
    unsigned eob_run = scan->eob_run;
    for (size_t end = at + (size_t)n; at < end; at++) {
        if (eob_run && !(c->known[at] & band)) {
            eob_run--;
            continue;
        }
        if (!refine_band(&bits, scan, c->coefficients + at * BLOCK, &c->known[at], band, &eob_run,
                         deposit))
            return IRREGULAR;
        if (bits.at > bits.end + 8)
            return IRREGULAR;
    }
    scan->bits = bits;
    scan->eob_run = eob_run;
    return DECODED;
}

/* ------------------------------------------------------------------ any scan */

INLINE Status any_row(Scan *scan, int y, int x, int n, Deposit *deposit)
{
    if (scan->first)
        return scan->high ? refine_ac(scan, y, x, n, deposit) : first_ac(scan, y, x, n);
    return scan->high ? dc_row(scan, y, x, n, false) : dc_row(scan, y, x, n, true);
}

static Status plain_row(Scan *scan, int y, int x, int n)
{
    return any_row(scan, y, x, n, deposit_plain);
}

#ifdef __x86_64__
#include <immintrin.h>
#define BMI2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))

BMI2 static inline uint64_t deposit_bmi2(uint64_t from, uint64_t mask)
{
    return _pdep_u64(from, mask);
}

BMI2 static Status bmi2_row(Scan *scan, int y, int x, int n)
{
    return any_row(scan, y, x, n, deposit_bmi2);
}
#else
#define bmi2_row plain_row
#endif

/* ------------------------------------------------------------------ scripts and samples */

/* G.1.1.1: bands and precision of a scan must go on where those before it stopped. */
static Status check_script(const Scan *scan)
{
    bool is_dc = scan->first == 0;
    if (is_dc ? scan->last != 0 : scan->last < scan->first || scan->last >= BLOCK || scan->n != 1)
        return IRREGULAR;
    if (scan->low > 13 || (scan->high && scan->high != scan->low + 1))
        return IRREGULAR;
    /* A coefficient that no 8-bit image has. */
    if (!is_dc && scan->low > 3)
        return OUT_OF_RANGE;
    for (int i = 0; i < scan->n; i++) {
        Component *c = scan->components[i];
        if (!is_dc && c->low[0] < 0)
            return IRREGULAR;
        for (int k = scan->first; k <= scan->last; k++) {
            if (c->low[k] != (scan->high ? scan->high : -1))
                return IRREGULAR;
            c->low[k] = (int8_t)scan->low;
        }
    }
    return DECODED;
}

static Status decode_one(Scratch *scratch, Frame *frame, Scan *scan)
{
    Status status = check_script(scan);
    if (status)
        return status;
    bool is_dc = scan->first == 0;
    status = scan_tables(scratch, frame, scan, is_dc && !scan->high, !is_dc, NULL);
    if (status)
        return status;
    if (!is_dc && !scan->components[0]->coefficients)
        return pass_over_scan(frame, scan);
    return decode_scan(scratch, frame, scan, kernels->bmi2 ? bmi2_row : plain_row);
}

/* A script that ends early: libjpeg smooths what is left of blocks. */
static Status check_complete(const Frame *frame)
{
    for (int i = 0; i < frame->n_components; i++)
        for (int k = 0; k < BLOCK; k++)
            if (frame->components[i].low[k])
                return UNREFINED;
    return DECODED;
}

/* One or two neighbouring blocks. Of those that are flat no coefficient is touched, not even to put
 * DC among them: it would be a cache miss a block. */
INLINE void put_pair(const Component *c, int x, int y, int count)
{
    size_t at = (size_t)y * (size_t)c->wide + (size_t)x;
    const int16_t *dc = dc_of(c, x, y);
    uint8_t *out = samples_of(c, x, y), ends[2];
    int16_t (*blocks)[BLOCK] = (void *)(c->coefficients + at * BLOCK);
    if (!(c->known[at] | c->known[at + (size_t)count - 1])) {
        for (int i = 0; i < count; i++)
            fill_flat(out + i * c->n, c->stride, c->n, dc_sample(c, dc[i]));
        return;
    }
    for (int i = 0; i < count; i++) {
        blocks[i][0] = dc[i];
        ends[i] = c->known[at + (size_t)i] ? BLOCK : 1;
    }
    put_blocks(c, blocks, ends, count, out);
}

/* Zeroes what no sample depended on. */
static void clear(const Component *c, int y, int x, int end)
{
    for (; x < end && c->n > 1; x++) {
        size_t at = (size_t)y * (size_t)c->wide + (size_t)x;
        if (c->known[at])
            memset(c->coefficients + at * BLOCK, 0, BLOCK * sizeof(int16_t));
    }
}

static void put_row(const Frame *frame, const Component *c, int y)
{
    const int16_t *dc = dc_of(c, 0, y);
    int from = frame->first_column * c->h, to = frame->end_column * c->h;
    if (y < frame->first_row * c->v || y >= frame->end_row * c->v)
        from = to = 0;
    to = to < c->wide ? to : c->wide;
    for (int x = from; x < to && c->n == 1; x++)
        *samples_of(c, x, y) = dc_sample(c, dc[x]);
    for (int x = from; x < to && c->n > 1; x += 2)
        put_pair(c, x, y, to - x < 2 ? 1 : 2);
    clear(c, y, 0, from);
    clear(c, y, to, c->wide);
}

static Status put_samples(const Frame *frame)
{
    unsigned beyond = 0;
    for (int i = 0; i < frame->n_components; i++) {
        const Component *c = &frame->components[i];
        for (int y = 0; y < c->high; y++) {
            const int16_t *dc = dc_of(c, 0, y);
            for (int x = 0; x < c->wide; x++)
                beyond |= dc_beyond(c, dc[x]);
        }
        for (int y = 0; y < c->high && !beyond; y++)
            put_row(frame, c, y);
    }
    return beyond ? OUT_OF_RANGE : DECODED;
}

/* Coefficients are zeroed as they become samples, so that no image begins with clearing them: of
 * a 5-megapixel photo they are 15 to 30 MB. */
static bool take_memory(Scratch *scratch, Frame *frame)
{
    size_t blocks = 0, coefficients = 0, known = 0;
    for (int i = 0; i < frame->n_components; i++) {
        const Component *c = &frame->components[i];
        blocks += (size_t)c->padded_wide * (size_t)c->padded_high;
        known += c->n > 1 ? (size_t)c->wide * (size_t)c->high : 0;
    }
    coefficients = known * BLOCK * sizeof(int16_t);
    uint64_t *maps = scratch_take(scratch, KNOWN, known * sizeof *maps + blocks * sizeof(int16_t));
    int16_t *values = scratch_take(scratch, COEFFICIENTS, coefficients);
    if (!maps || !values)
        return false;
    memset(maps, 0, known * sizeof *maps + blocks * sizeof(int16_t));
    int16_t *dc = (int16_t *)(maps + known);
    for (int i = 0; i < frame->n_components; i++) {
        Component *c = &frame->components[i];
        c->dc = dc;
        dc += (size_t)c->padded_wide * (size_t)c->padded_high;
        if (c->n == 1)
            continue;
        c->known = maps;
        c->coefficients = values;
        maps += (size_t)c->wide * (size_t)c->high;
        values += (size_t)c->wide * (size_t)c->high * BLOCK;
    }
    return true;
}

Status decode_progressive(Scratch *scratch, Frame *frame, Scan *scan)
{
    Status status = take_memory(scratch, frame) ? DECODED : NO_MEMORY;
    while (!status && scan->n) {
        status = decode_one(scratch, frame, scan);
        if (!status)
            status = next_scan(frame, scan);
    }
    if (!status)
        status = check_complete(frame);
    if (!status)
        status = put_samples(frame);
    if (status)
        scratch_drop(scratch, COEFFICIENTS);
    return status;
}
