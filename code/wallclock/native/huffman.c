/* Huffman tables (T.81, annex C and F.2.2.3), kept for the files that share them, and the
 * entropy-coded segments of a scan. */
#include <stdlib.h>
#include <string.h>

#include "jpeg.h"

/* A cache is larger than the tables that one scan can name. A block has at most 27 + 63 * 26 bits,
 * which is less than MOST_BYTES. */
enum { CACHED = 8, MOST_AC_BITS = 10, MOST_DC_BITS = 11, MOST_BYTES = 256 };

struct HuffmanCache {
    HuffmanTables *tables[CACHED]; /* the last used one first */
};

static Symbol symbol_of(int length, int value, uint32_t bits, bool is_ac)
{
    int size = value & 15, run = value >> 4;
    if (length + size > LOOKUP || (is_ac && !size && run > 0 && run < 15))
        return (Symbol){0, 0, (uint8_t)length};
    int extra = (int)(bits >> (LOOKUP - length - size) & ((1u << size) - 1));
    return (Symbol){size ? (int16_t)extend(extra, size) : 0, (uint8_t)(length + size),
                    is_ac && !value ? END : (uint8_t)(run + 1)};
}

/* Generate_code_table and Decoder_tables (figures C.2, F.15). No code is all ones. */
static bool build(Codes *codes, bool is_ac)
{
    int code = 0, most = is_ac ? MOST_AC_BITS : MOST_DC_BITS;
    const uint8_t *value = codes->bytes + 16;
    memset(codes->symbols, 0, sizeof codes->symbols);
    for (int length = 1; length <= 16; length++, code <<= 1) {
        int count = codes->bytes[length - 1];
        if (count && code + count >= 1 << length)
            return false;
        codes->offset[length] = (int)(value - codes->bytes) - code;
        for (; count--; value++, code++) {
            if ((is_ac ? *value & 15 : *value) > most)
                return false;
            uint32_t bits = (uint32_t)code << LOOKUP >> length;
            for (uint32_t end = bits + (1u << LOOKUP >> length); bits < end;) {
                Symbol symbol = symbol_of(length, *value, bits, is_ac);
                uint32_t known = symbol.bits ? symbol.bits : (uint32_t)length;
                for (uint32_t stop = bits + (1u << (LOOKUP - known)); bits < stop; bits++)
                    codes->symbols[bits] = symbol;
            }
        }
        codes->limit[length] = (uint32_t)code << (16 - length);
    }
    codes->limit[17] = UINT32_MAX;
    return true;
}

/* The symbol behind the first `used` of `size` bits, if it is there whole. */
static Symbol symbol_within(const Codes *codes, uint32_t bits, int used, int size)
{
    uint32_t next = bits << (32 - size) << used;
    Symbol symbol = codes->symbols[next >> (32 - LOOKUP)];
    if (used >= size || used + symbol.bits > size)
        symbol.bits = 0;
    return symbol;
}

/* Up to `most` coefficients that `size` bits hold whole, and the end of the block if it comes then.
 * The first one is DC, or `is_ac`. */
static Pair look_ahead(const HuffmanTables *tables, bool is_ac, uint32_t bits, int size, int most)
{
    Pair ahead = {0};
    for (int n = 0, used = 0;; n++, is_ac = true) {
        Symbol symbol = symbol_within(&tables->codes[is_ac], bits, used, size);
        bool ends = symbol.advance == END;
        if (!symbol.bits || (!ends && (n == most || ahead.advance + symbol.advance > BLOCK)))
            return ahead;
        used += symbol.bits;
        ahead.bits = (uint8_t)(used | (ends ? END : 0));
        if (ends)
            return ahead;
        ahead.advance = (uint8_t)(ahead.advance + symbol.advance);
        ahead.second = symbol.value;
        ahead.at_second = (uint8_t)(ahead.advance - 1);
        if (n == 0) {
            ahead.first = ahead.second;
            ahead.at_first = ahead.at_second;
        }
    }
}

void need_pairs(HuffmanTables *tables)
{
    for (uint32_t bits = 0; bits < 1 << PAIR_LOOKUP && !tables->has_pairs; bits++)
        tables->pairs[bits] = look_ahead(tables, true, bits, PAIR_LOOKUP, 2);
    tables->has_pairs = true;
}

void need_skips(HuffmanTables *tables)
{
    for (uint32_t i = 0; i < 2 << SKIP_LOOKUP && !tables->has_skips; i++) {
        uint32_t is_ac = i >> SKIP_LOOKUP, bits = i & ((1 << SKIP_LOOKUP) - 1);
        Pair ahead = look_ahead(tables, is_ac, bits, SKIP_LOOKUP, BLOCK);
        uint32_t used = ahead.bits & ~END, advance = used ? ahead.advance : BLOCK;
        uint32_t difference = is_ac ? 0 : (uint32_t)ahead.first & 0x7FFF;
        uint32_t end = ahead.bits & END ? 1u << 31 : 0;
        tables->skips[is_ac][bits] =
            (int32_t)(end | difference << SKIP_DIFFERENCE | advance << SKIP_ADVANCE | used);
    }
    tables->has_skips = true;
}

static bool is_of(const HuffmanTables *tables, const TableBytes from[2])
{
    bool same = true;
    for (int i = 0; i < 2 && same; i++)
        same = tables->codes[i].size == from[i].size &&
               !memcmp(tables->codes[i].bytes, from[i].counts, from[i].size);
    return same;
}

static Status find_tables(struct HuffmanCache *cache, const TableBytes from[2])
{
    size_t at = 0;
    while (at < CACHED - 1 && cache->tables[at] && !is_of(cache->tables[at], from))
        at++;
    HuffmanTables *tables = cache->tables[at];
    if (!tables && !(tables = calloc(1, sizeof *tables)))
        return NO_MEMORY;
    memmove(cache->tables + 1, cache->tables, at * sizeof tables);
    cache->tables[0] = tables;
    if (is_of(tables, from))
        return DECODED;
    tables->has_pairs = tables->has_skips = false;
    for (int i = 0; i < 2; i++) {
        Codes *codes = &tables->codes[i];
        codes->size = 0;
        memcpy(codes->bytes, from[i].counts, from[i].size);
        if (from[i].size && !build(codes, i))
            return IRREGULAR;
        codes->size = from[i].size;
    }
    return DECODED;
}

/* The tables that a scan uses: one that refines DC has none. */
Status scan_tables(Scratch *scratch, const Frame *frame, Scan *scan)
{
    bool used[2] = {scan->first == 0 && !scan->high, scan->last > 0};
    if (!scratch->tables && !(scratch->tables = calloc(1, sizeof *scratch->tables)))
        return NO_MEMORY;
    for (int i = 0; i < scan->n && (used[0] || used[1]); i++) {
        TableBytes from[2] = {frame->tables[0][scan->td[i]], frame->tables[1][scan->ta[i]]};
        for (int class = 0; class < 2; class++) {
            if (!used[class])
                from[class] = (TableBytes){(const uint8_t *)"", 0};
            else if (!from[class].size)
                return IRREGULAR;
        }
        Status status = find_tables(scratch->tables, from);
        if (status)
            return status;
        scan->tables[i] = scratch->tables->tables[0];
    }
    return DECODED;
}

void huffman_cache_free(struct HuffmanCache *cache)
{
    for (int i = 0; cache && i < CACHED; i++)
        free(cache->tables[i]);
    free(cache);
}

/* Finds the marker behind entropy-coded data; false: there is none. `out`: NULL, or where the data
 * is put without its stuffed bytes (B.1.1.5), in whole runs: a tenth of the time of a loop. */
static bool next_marker(Bytes *rest, uint8_t **out)
{
    for (;;) {
        const uint8_t *ff = memchr(rest->at, 0xFF, (size_t)(rest->end - rest->at));
        if (!ff || ff + 1 >= rest->end)
            return false;
        size_t n = (size_t)(ff - rest->at) + !ff[1];
        if (out) {
            memcpy(*out, rest->at, n);
            *out += n;
        }
        rest->at = ff;
        if (ff[1])
            return true;
        rest->at += 2;
    }
}

/* MCUs from `done` to `stop`. Less than a byte may be left over, and nothing read that is not
 * there. */
static Status decode_interval(Scan *scan, size_t done, size_t stop, DecodeRow *decode_row)
{
    memset(scan->predictions, 0, sizeof scan->predictions);
    while (done < stop) {
        int y = (int)(done / (size_t)scan->wide), x = (int)(done % (size_t)scan->wide);
        int n = stop - done < (size_t)(scan->wide - x) ? (int)(stop - done) : scan->wide - x;
        Status status = decode_row(scan, y, x, n);
        if (status)
            return status;
        done += (size_t)n;
    }
    ptrdiff_t left = (scan->bits.end - scan->bits.at) * 8 + scan->bits.count;
    return scan->eob_run || left < 0 || left >= 8 ? IRREGULAR : DECODED;
}

Status decode_scan(Scratch *scratch, Frame *frame, Scan *scan, DecodeRow *decode_row)
{
    Bytes *rest = &frame->rest;
    size_t total = (size_t)scan->wide * (size_t)scan->rows, stop;
    size_t interval = frame->restart_interval ? (size_t)frame->restart_interval : total;
    size_t size = (size_t)(rest->end - rest->at) + MOST_UNCHECKED * MOST_BYTES;
    uint8_t *bytes = decode_row ? scratch_take(scratch, BITS, size) : NULL;
    if (decode_row && !bytes)
        return NO_MEMORY;
    for (size_t done = 0; done < total; done = stop) {
        uint8_t *end = bytes;
        if (done && rest->at[1] != 0xD0 + (done / interval - 1) % 8)
            return IRREGULAR;
        rest->at += done ? 2 : 0;
        if (!next_marker(rest, bytes ? &end : NULL))
            return IRREGULAR;
        stop = total - done < interval ? total : done + interval;
        if (!decode_row)
            continue;
        memset(end, 0, 16);
        scan->bits = (Bits){bytes, end, 0, 0};
        Status status = decode_interval(scan, done, stop, decode_row);
        if (status)
            return status;
    }
    return DECODED;
}
