/* Progressive JPEGs (T.81, annex G). A bitmap per block says which AC coefficients are known, so
 * that a refinement scan takes a block's correction bits at once (2 times as fast as a walk along
 * its coefficients); scans of which no sample depends at this scale are passed over. */
#include <string.h>

#include "jpeg.h"

/* The bits of `from`, lowest first, at the places of the ones in `mask`. */
INLINE uint64_t deposit(uint64_t from, uint64_t mask, bool bmi2)
{
    uint64_t result = 0;
#ifdef HAVE_AVX2
    if (bmi2) {
        __asm__("pdep %2, %1, %0" : "=r"(result) : "r"(from), "r"(mask));
        return result;
    }
#endif
    for (; mask; mask &= mask - 1, from >>= 1)
        if (from & 1)
            result |= mask & -mask;
    return result;
}

/* DC scans (G.1.2.1). */
INLINE bool decode_dc(Bits *bits, Scan *scan, int i, int16_t *dc)
{
    int run, difference;
    unsigned eob_run;
    if (bits->count < 27)
        refill(bits);
    if (scan->high) {
        *dc |= (int16_t)(take(bits, 1) << scan->low);
        return true;
    }
    if (!next_symbol(bits, &scan->tables[i]->codes[0], &run, &difference, &eob_run))
        return false;
    scan->predictions[i] += difference;
    scan->beyond |= dc_beyond(scan->components[i], scan->predictions[i]);
    *dc = (int16_t)((unsigned)scan->predictions[i] << scan->low);
    return true;
}

INLINE Status dc_row(Scan *scan, int y, int x, int n)
{
    Bits bits = scan->bits;
    for (int end = x + n; x < end; x++) {
        for (int i = 0; i < scan->n; i++) {
            const Component *c = scan->components[i];
            int wide = scan->n > 1 ? c->h : 1, high = scan->n > 1 ? c->v : 1;
            int16_t *dc = c->dc + (size_t)(y * high) * (size_t)c->stored_wide + x * wide;
            for (int v = 0; v < high; v++, dc += c->stored_wide)
                for (int h = 0; h < wide; h++)
                    if (!decode_dc(&bits, scan, i, dc + h))
                        return IRREGULAR;
        }
        if (overrun(&bits))
            return IRREGULAR;
    }
    scan->bits = bits;
    return scan->beyond ? OUT_OF_RANGE : DECODED;
}

/* First AC scans (G.1.2.2). */
INLINE bool first_band(Bits *bits, const Scan *scan, int16_t *block, uint64_t *known,
                       unsigned *eob_run)
{
    for (int k = scan->first; k <= scan->last && !*eob_run; k++) {
        int run, value;
        if (bits->count < 32)
            refill(bits);
        if (!next_symbol(bits, &scan->tables[0]->codes[1], &run, &value, eob_run))
            return false;
        if (*eob_run)
            break;
        k += run;
        if (k > scan->last)
            return false;
        block[natural_order[k]] = (int16_t)(value * (1 << scan->low));
        *known |= (uint64_t)(value != 0) << (63 - k);
    }
    return true;
}

/* A correction bit for each coefficient in `mask`; those with a 1 grow by `step`. */
INLINE void correct(Bits *bits, int16_t *block, uint64_t mask, int step, bool bmi2)
{
    while (mask) {
        uint64_t now = mask;
        if (UNLIKELY(__builtin_popcountll(mask) > 56))
            now &= ~(uint64_t)0xFFFF;
        int n = __builtin_popcountll(now);
        if (bits->count < n)
            refill(bits);
        for (uint64_t ones = deposit(bits->buffer >> (64 - n), now, bmi2); ones; ones &= ones - 1) {
            int16_t *value = block + natural_order[63 - __builtin_ctzll(ones)];
            *value = (int16_t)(*value + (*value < 0 ? -step : step));
        }
        drop(bits, n);
        mask &= ~now;
    }
}

/* Refining AC scans (G.1.2.3). */
INLINE bool refine_band(Bits *bits, const Scan *scan, int16_t *block, uint64_t *known,
                        uint64_t band, unsigned *eob_run, bool bmi2)
{
    int step = 1 << scan->low;
    uint64_t seen = *known, ahead = band; /* of the band, what is behind the last symbol */
    while (!*eob_run && ahead) {
        int run, value;
        if (bits->count < 32)
            refill(bits);
        if (!next_symbol(bits, &scan->tables[0]->codes[1], &run, &value, eob_run) || value < -1 ||
            value > 1)
            return false;
        if (*eob_run)
            break;
        /* The zero behind `run` others becomes `value`, or ends a run of 16. */
        uint64_t zeros = ahead & ~seen;
        int beyond = __builtin_popcountll(zeros) - 1 - run;
        if (beyond < 0)
            return false;
        uint64_t target = deposit((uint64_t)1 << beyond, zeros, bmi2);
        correct(bits, block, ahead & seen & -target, step, bmi2);
        block[natural_order[__builtin_clzll(target)]] = (int16_t)(value * step);
        seen |= value ? target : 0;
        ahead &= target - 1;
    }
    *known = seen;
    if (*eob_run)
        correct(bits, block, ahead & seen, step, bmi2);
    return true;
}

INLINE Status ac_row(Scan *scan, int y, int x, int n, bool bmi2)
{
    const Component *c = scan->components[0];
    uint64_t band = ~(uint64_t)0 >> scan->first & ~(uint64_t)0 << (63 - scan->last);
    size_t at = (size_t)y * (size_t)c->stored_wide + (size_t)x;
    Bits bits = scan->bits;
    unsigned eob_run = scan->eob_run;
    for (size_t end = at + (size_t)n; at < end; at++, eob_run -= eob_run > 0) {
        uint64_t *known = &c->known[at];
        int16_t *block = c->coefficients[at];
        if (eob_run && !(*known & band))
            continue;
        if (!(scan->high ? refine_band(&bits, scan, block, known, band, &eob_run, bmi2)
                         : first_band(&bits, scan, block, known, &eob_run)) || overrun(&bits))
            return IRREGULAR;
    }
    scan->bits = bits;
    scan->eob_run = eob_run;
    return DECODED;
}

INLINE Status decode_row(Scan *scan, int y, int x, int n, bool bmi2)
{
    return scan->first ? ac_row(scan, y, x, n, bmi2) : dc_row(scan, y, x, n);
}
PLAIN_ROW(decode_row)
BMI2_ROW(decode_row)

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

/* A script that ends early: libjpeg smooths what is left of blocks. */
static Status check_complete(const Frame *frame)
{
    for (int i = 0; i < frame->n_components; i++)
        for (int k = 0; k < BLOCK; k++)
            if (frame->components[i].low[k])
                return UNREFINED;
    return DECODED;
}

/* Whether an 8-bit image has such DC coefficients. */
static bool dc_fits(const int16_t *dc, size_t n, int quant)
{
    int16_t least = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        least = dc[i] < least ? dc[i] : least;
        most = dc[i] > most ? dc[i] : most;
    }
    return least * quant >= -2048 && most * quant < 2048;
}

/* Zeroes blocks on which no sample depends. */
static void clear(const Component *c, size_t at, size_t end)
{
    for (; at < end; at++)
        if (c->known[at])
            memset(c->coefficients[at], 0, sizeof c->coefficients[at]);
}

static Status put_row(const Frame *frame, const Component *c, int y)
{
    size_t wide = (size_t)c->stored_wide, row = (size_t)y * wide;
    uint8_t *out = samples_of(c, 0, y);
    if (!dc_fits(c->dc + row, wide, c->quant[0]))
        return OUT_OF_RANGE;
    if (c->n == 1) {
        for (size_t x = 0; x < (size_t)c->padded_wide; x++)
            out[x] = dc_sample(c->dc[row + x], c->quant[0]);
        return DECODED;
    }
    bool wanted = y >= frame->first_row * c->v && y < frame->end_row * c->v;
    size_t from = wanted ? (size_t)(frame->first_column * c->h) & ~(size_t)1 : wide;
    size_t to = wanted ? (size_t)(frame->end_column * c->h + 1) & ~(size_t)1 : wide;
    for (size_t x = from; x < to; x++)
        if (c->known[row + x] | c->known[(row + x) ^ 1])
            c->coefficients[row + x][0] = c->dc[row + x];
    for (size_t x = from; x < to; x += 2)
        put_pair(c, row + x, out + x * (size_t)c->n);
    clear(c, row, row + from);
    clear(c, row + to, row + wide);
    return DECODED;
}

Status decode_progressive(Scratch *scratch, Frame *frame, Scan *scan)
{
    Status status = DECODED;
    while (!status && scan->n) {
        DecodeRow *row = scan->first && scan->components[0]->n == 1 ? NULL : BEST(decode_row);
        status = check_script(scan);
        if (!status)
            status = scan_tables(scratch, frame, scan);
        if (!status)
            status = decode_scan(scratch, frame, scan, row);
        if (!status)
            status = next_scan(frame, scan);
    }
    if (!status)
        status = check_complete(frame);
    for (int i = 0; i < frame->n_components; i++)
        for (int y = 0; y < frame->components[i].padded_high && !status; y++)
            status = put_row(frame, &frame->components[i], y);
    return status;
}
