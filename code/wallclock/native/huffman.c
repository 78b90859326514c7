/* Huffman tables (T.81, annex C and F.2.2.3), kept for the files that share them, and the
 * entropy-coded segments of a scan. */
#include <stdlib.h>
#include <string.h>

#include "jpeg.h"

/* A cache is larger than the four tables of each class that one scan can name. A block has at most
 * 27 + 63 * 26 bits, which is less than MOST_BYTES. */
enum { CACHED = 8, MOST_AC_BITS = 10, MOST_DC_BITS = 11, MOST_BYTES = 256 };

struct HuffmanCache {
    HuffmanTable *tables[2][CACHED];
    uint64_t uses;
};

static Symbol symbol_of(int length, int value, uint32_t bits, bool is_ac)
{
    int size = is_ac ? value & 15 : value, run = is_ac ? value >> 4 : 0;
    if (length + size > LOOKUP || (is_ac && !size && run > 0 && run < 15))
        return (Symbol){(int16_t)value, 0, (uint8_t)length};
    uint8_t advance = is_ac && !size && !run ? END : (uint8_t)(run + 1);
    bits >>= LOOKUP - length - size;
    int extra = (int)(bits & ((1u << size) - 1));
    return (Symbol){size ? (int16_t)extend(extra, size) : 0, (uint8_t)(length + size), advance};
}

/* Generate_code_table and Decoder_tables (figures C.2, F.15). */
static bool build(HuffmanTable *table)
{
    int code = 0, k = 0;
    memset(table->symbols, 0, sizeof table->symbols);
    for (int length = 1; length <= 16; length++, code <<= 1) {
        table->offset[length] = k - code;
        for (int i = table->bytes[length - 1]; i--; k++, code++) {
            int value = table->bytes[16 + k];
            if ((table->is_ac ? value & 15 : value) > (table->is_ac ? MOST_AC_BITS : MOST_DC_BITS))
                return false;
            table->values[k] = (uint8_t)value;
            if (length > LOOKUP)
                continue;
            uint32_t bits = (uint32_t)code << (LOOKUP - length);
            uint32_t end = bits + (1u << (LOOKUP - length));
            if (end > 1u << LOOKUP)
                return false;
            while (bits < end) {
                Symbol symbol = symbol_of(length, value, bits, table->is_ac);
                int known = symbol.bits ? symbol.bits : length;
                for (uint32_t stop = bits + (1u << (LOOKUP - known)); bits < stop; bits++)
                    table->symbols[bits] = symbol;
            }
        }
        /* No code is all ones. */
        if (code >= 1 << length && table->bytes[length - 1])
            return false;
        table->limit[length] = (uint32_t)code << (16 - length);
    }
    return true;
}

/* The symbol behind the first `used` of `size` bits, if it is there whole. */
static Symbol symbol_within(const HuffmanTable *table, uint32_t bits, int used, int size)
{
    uint32_t next = bits << (32 - size) << used;
    Symbol symbol = table->symbols[next >> (32 - LOOKUP)];
    if (used >= size || used + symbol.bits > size)
        symbol.bits = 0;
    return symbol;
}

static void build_pairs(HuffmanTable *table)
{
    for (uint32_t bits = 0; bits < 1 << PAIR_LOOKUP; bits++) {
        Pair pair = {.advance = BLOCK};
        int used = 0, advance = 0;
        for (int n = 0; n < 3; n++) {
            Symbol symbol = symbol_within(table, bits, used, PAIR_LOOKUP);
            if (!symbol.bits || (n == 2 && symbol.advance != END))
                break;
            used += symbol.bits;
            pair.advance = (uint8_t)advance;
            pair.bits = (uint8_t)used;
            if (symbol.advance == END) {
                pair.bits |= END;
                break;
            }
            advance += symbol.advance;
            pair.advance = (uint8_t)advance;
            pair.second = symbol.value;
            pair.at_second = (uint8_t)(advance - 1);
            if (n == 0) {
                pair.first = pair.second;
                pair.at_first = pair.at_second;
            }
        }
        table->pairs[bits] = pair;
    }
    table->has_pairs = true;
}

/* `dc`: whose symbol comes first; NULL: none. */
static void build_skips(int32_t *skips, const HuffmanTable *dc, const HuffmanTable *ac)
{
    for (uint32_t bits = 0; bits < 1 << SKIP_LOOKUP; bits++) {
        int used = 0, advance = 0, end = 0, difference = 0;
        if (dc) {
            Symbol symbol = symbol_within(dc, bits, 0, SKIP_LOOKUP);
            difference = symbol.value;
            used = symbol.bits;
            advance = 1;
        }
        while (!end && (used || !dc)) {
            Symbol symbol = symbol_within(ac, bits, used, SKIP_LOOKUP);
            end = symbol.advance == END;
            if (!symbol.bits || (!end && advance + symbol.advance > BLOCK)) {
                end = 0;
                break;
            }
            used += symbol.bits;
            advance += end ? 0 : symbol.advance;
        }
        if (!used)
            advance = BLOCK;
        uint32_t dc_bits = ((uint32_t)difference & 0x7FFF) << SKIP_DIFFERENCE;
        skips[bits] = (int32_t)((uint32_t)end << 31 | dc_bits | (uint32_t)advance << SKIP_ADVANCE |
                                (uint32_t)used);
    }
}

static HuffmanTable *least_used(HuffmanTable **tables)
{
    HuffmanTable **oldest = tables;
    for (int i = 0; i < CACHED; i++) {
        if (!tables[i]) {
            tables[i] = calloc(1, sizeof *tables[i]);
            return tables[i];
        }
        if (tables[i]->last_use < (*oldest)->last_use)
            oldest = tables + i;
    }
    return *oldest;
}

/* `skipped`: the AC table that a DC table's skips are of. Two components may share the one but not
 * the other, and then need a copy each. */
static Status find_table(struct HuffmanCache *cache, bool is_ac, TableBytes from,
                         const HuffmanTable *skipped, HuffmanTable **found)
{
    if (!from.counts)
        return IRREGULAR;
    HuffmanTable **tables = cache->tables[is_ac];
    for (int i = 0; i < CACHED && tables[i]; i++) {
        HuffmanTable *table = *found = tables[i];
        if (skipped && table->has_skips && table->skipped_serial != skipped->serial)
            continue;
        if (table->size == from.size && !memcmp(table->bytes, from.counts, (size_t)from.size)) {
            table->last_use = ++cache->uses;
            return DECODED;
        }
    }
    HuffmanTable *table = *found = least_used(tables);
    if (!table)
        return NO_MEMORY;
    table->size = from.size;
    table->is_ac = is_ac;
    table->has_pairs = table->has_skips = false;
    table->serial = table->last_use = ++cache->uses;
    memcpy(table->bytes, from.counts, (size_t)from.size);
    if (build(table))
        return DECODED;
    table->size = 0;
    return IRREGULAR;
}

/* Skips take 30 us, which files that do not need them spend only on tables that return. */
static void build_extras(HuffmanTable *dc, HuffmanTable *ac, int extras, bool shared)
{
    if (extras & PAIRS && !ac->has_pairs)
        build_pairs(ac);
    if (!(extras & SKIPS) && !(extras & SKIPS_IF_SHARED && shared))
        return;
    if (!ac->has_skips)
        build_skips(ac->skips, NULL, ac);
    ac->has_skips = true;
    if (dc->has_skips && dc->skipped_serial == ac->serial)
        return;
    build_skips(dc->skips, dc, ac);
    dc->has_skips = true;
    dc->skipped_serial = ac->serial;
}

/* The tables that the components of a scan name; `extras` with them where both are wanted. */
Status scan_tables(Scratch *scratch, const Frame *frame, Scan *scan, bool dc, bool ac,
                   const int *extras)
{
    if (!scratch->tables)
        scratch->tables = calloc(1, sizeof *scratch->tables);
    if (!scratch->tables)
        return NO_MEMORY;
    const uint64_t before = scratch->tables->uses;
    for (int i = 0; i < scan->n; i++) {
        HuffmanTable *found[2] = {NULL, NULL};
        Status status = DECODED;
        if (ac)
            status = find_table(scratch->tables, true, frame->tables[1][scan->ta[i]], NULL,
                                &found[1]);
        if (!status && dc)
            status = find_table(scratch->tables, false, frame->tables[0][scan->td[i]],
                                extras ? found[1] : NULL, &found[0]);
        if (status)
            return status;
        scan->dc[i] = found[0];
        scan->ac[i] = found[1];
        if (!extras)
            continue;
        build_extras(found[0], found[1], extras[i], found[1]->serial <= before);
        bool built = found[0]->has_skips && found[0]->skipped_serial == found[1]->serial;
        scan->skips[i] = built ? found[0]->skips : NULL;
    }
    return DECODED;
}

void huffman_cache_free(struct HuffmanCache *cache)
{
    for (int i = 0; cache && i < 2 * CACHED; i++)
        free(cache->tables[i / CACHED][i % CACHED]);
    free(cache);
}

/* Finds the marker behind entropy-coded data. `out`: where the data is put without its stuffed
 * bytes (B.1.1.5), in whole runs between FFs: a tenth of the time of a loop over bytes. */
static uint8_t *next_marker(Bytes *rest, uint8_t *out)
{
    for (;;) {
        const uint8_t *ff = memchr(rest->at, 0xFF, (size_t)(rest->end - rest->at));
        if (!ff || ff + 1 >= rest->end)
            return NULL;
        size_t n = (size_t)(ff - rest->at) + !ff[1];
        memcpy(out, rest->at, n);
        out += n;
        rest->at = ff;
        if (ff[1])
            return out;
        rest->at += 2;
    }
}

static bool restart_marker(Bytes *rest, int number)
{
    if (rest->end - rest->at < 2 || rest->at[0] != 0xFF || rest->at[1] != 0xD0 + (number & 7))
        return false;
    rest->at += 2;
    return true;
}

/* Less than a byte is left over, and nothing was read that is not there. */
static bool used_up(const Bits *bits)
{
    ptrdiff_t left = (bits->end - bits->at) * 8 + bits->count;
    return left >= 0 && left < 8;
}

Status decode_scan(Scratch *scratch, Frame *frame, Scan *scan, DecodeRow *decode_row)
{
    size_t total = (size_t)scan->wide * (size_t)scan->rows, done = 0;
    size_t interval = frame->restart_interval ? (size_t)frame->restart_interval : total;
    size_t size = (size_t)(frame->rest.end - frame->rest.at) + MOST_UNCHECKED * MOST_BYTES;
    uint8_t *bytes = scratch_take(scratch, BITS, size);
    if (!bytes)
        return NO_MEMORY;
    for (int restart = 0; done < total; restart++) {
        if (restart && !restart_marker(&frame->rest, restart - 1))
            return IRREGULAR;
        uint8_t *end = next_marker(&frame->rest, bytes);
        if (!end)
            return IRREGULAR;
        memset(end, 0, 16);
        scan->bits = (Bits){bytes, end, 0, 0};
        memset(scan->predictions, 0, sizeof scan->predictions);
        size_t stop = total - done < interval ? total : done + interval;
        while (done < stop) {
            int y = (int)(done / (size_t)scan->wide), x = (int)(done % (size_t)scan->wide);
            int n = stop - done < (size_t)(scan->wide - x) ? (int)(stop - done) : scan->wide - x;
            Status status = decode_row(scan, y, x, n);
            if (status)
                return status;
            done += (size_t)n;
        }
        if (scan->eob_run || !used_up(&scan->bits))
            return IRREGULAR;
    }
    return DECODED;
}

/* Passes over a scan on which nothing depends: up to its end, through its restart markers. */
Status pass_over_scan(Frame *frame, const Scan *scan)
{
    Bytes *rest = &frame->rest;
    size_t total = (size_t)scan->wide * (size_t)scan->rows, restarts = 0;
    if (frame->restart_interval)
        restarts = (total - 1) / (size_t)frame->restart_interval;
    for (size_t restart = 0;;) {
        const uint8_t *ff = memchr(rest->at, 0xFF, (size_t)(rest->end - rest->at));
        if (!ff || ff + 1 >= rest->end)
            return IRREGULAR;
        rest->at = ff;
        if (!ff[1])
            rest->at += 2;
        else if (restart == restarts)
            return DECODED;
        else if (!restart_marker(rest, (int)(restart++ & 7)))
            return IRREGULAR;
    }
}
