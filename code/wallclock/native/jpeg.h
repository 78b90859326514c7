/* What the parts of the decoder share: names in comments are those of ITU T.81. */
#ifndef WALLCLOCK_JPEG_H
#define WALLCLOCK_JPEG_H

#include "native.h"

#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "refill() turns eight bytes around");

enum { MAX_COMPONENTS = 3, N_TABLES = 4, BLOCK = 64 };

typedef struct { const uint8_t *at, *end; } Bytes;

typedef struct {
    int id, h, v, tq;               /* Ci, Hi, Vi, Tqi */
    int wide, high;                 /* blocks of the image: a scan of one component has them */
    int padded_wide;                /* blocks of whole MCUs: what an interleaved scan has */
    int padded_high;
    int n;                          /* samples across and down that a block becomes: 1, 2, 4 or 8 */
    uint8_t *samples;
    ptrdiff_t stride;
    _Alignas(32) int16_t quant[BLOCK];      /* Qi, in natural order */
    /* of progressive files: */
    int16_t *dc;                    /* one a block */
    int16_t *coefficients;          /* 64 a block, the first unused; NULL: no sample needs AC */
    uint64_t *known;                /* which are not 0: position k of the zigzag at bit 63 - k */
    int8_t low[BLOCK];              /* Al of the last scan of each coefficient; -1: none so far */
} Component;

/* A table as DHT has it: 16 counts (BITS), then the symbols (HUFFVAL). */
typedef struct { const uint8_t *counts; int size; } TableBytes;

typedef struct {
    Bytes rest;                     /* what is not parsed yet */
    int width, height;
    uint8_t sof;
    int n_components, h_max, v_max, mcus_wide, mcus_high, restart_interval;
    Component components[MAX_COMPONENTS];
    bool jfif, adobe, app1, in_scans;
    uint8_t transform;              /* Adobe's */
    int segments;
    uint8_t quant_known;            /* bit i: table i is there */
    uint16_t quant[N_TABLES][BLOCK];
    TableBytes tables[2][N_TABLES]; /* DC, AC */
    int first_column, end_column;   /* MCUs that the wanted window depends on */
    int first_row, end_row;
    bool is_whole;
} Frame;

/* The bits of one restart interval, byte stuffing removed. */
typedef struct {
    const uint8_t *at, *end;
    uint64_t buffer;                /* the next bits, at the top */
    int count;                      /* how many of them are valid */
} Bits;

/* What the next LOOKUP bits say, if they hold a whole symbol with its extra bits: else bits is 0,
 * and `advance` and `value` are length and symbol of the code (length 0: longer than LOOKUP). */
enum { LOOKUP = 11, PAIR_LOOKUP = 10, SKIP_LOOKUP = 12, END = 128 };
typedef struct { int16_t value; uint8_t bits, advance; } Symbol;

/* Up to two coefficients, perhaps with the end of the block behind them (END in `bits`). */
typedef struct { int16_t first, second; uint8_t at_first, at_second, advance, bits; } Pair;

/* As many whole symbols as fit: bits they take, how far they advance in the block (beyond it, if
 * the first has no room), DC's difference (15 bits), whether the block ends there (the sign). */
enum { SKIP_ADVANCE = 8, SKIP_DIFFERENCE = 16 };

typedef struct HuffmanTable {
    Symbol symbols[1 << LOOKUP];
    Pair pairs[1 << PAIR_LOOKUP];           /* AC, where asked for */
    int32_t skips[1 << SKIP_LOOKUP];        /* AC alone; or a DC symbol, and AC ones behind it */
    uint32_t limit[18];                     /* first 16 bits of the first code that is longer */
    int offset[17];                         /* of the symbols of a length, less its first code */
    uint8_t values[256];
    uint8_t bytes[16 + 256];
    int size;
    bool is_ac, has_pairs, has_skips;
    uint64_t serial, skipped_serial;        /* its own, and of the AC table in a DC table's skips */
    uint64_t last_use;
} HuffmanTable;

typedef struct Scan {
    const Frame *frame;
    int n;                                  /* components; 0: there was EOI instead of a scan */
    Component *components[MAX_COMPONENTS];
    int td[MAX_COMPONENTS], ta[MAX_COMPONENTS];
    int first, last, high, low;             /* Ss, Se, Ah, Al */
    int wide, rows;                         /* in MCUs: blocks, if there is one component */
    const HuffmanTable *dc[MAX_COMPONENTS], *ac[MAX_COMPONENTS];
    const int32_t *skips[MAX_COMPONENTS];   /* of both; NULL: not built */
    int predictions[MAX_COMPONENTS];
    unsigned eob_run;
    unsigned beyond;                        /* not 0: a DC coefficient is out of range */
    Bits bits;
} Scan;

/* markers.c */
extern const uint8_t natural_order[BLOCK];
Status frame_begin(Frame *frame, const uint8_t *bytes, size_t size);
Status next_scan(Frame *frame, Scan *scan);
Status frame_colours(const Frame *frame, Colours *colours);

/* huffman.c */
enum { PAIRS = 1, SKIPS = 2, SKIPS_IF_SHARED = 4 };
Status scan_tables(Scratch *scratch, const Frame *frame, Scan *scan, bool dc, bool ac,
                   const int *extras);
void huffman_cache_free(struct HuffmanCache *cache);

/* Decodes n MCUs of row y, from column x on; looks at least once in MOST_UNCHECKED blocks
 * whether it has read beyond the end. */
enum { MOST_UNCHECKED = 60 };
typedef Status DecodeRow(Scan *scan, int y, int x, int n);
Status decode_scan(Scratch *scratch, Frame *frame, Scan *scan, DecodeRow *row);
Status pass_over_scan(Frame *frame, const Scan *scan);

/* sequential.c, progressive.c: samples of all components; `scan`: the first. */
Status decode_sequential(Scratch *scratch, Frame *frame, Scan *scan);
Status decode_progressive(Scratch *scratch, Frame *frame, Scan *scan);

/* decode.c */
void scratch_drop(Scratch *scratch, Use use);

/* Fills `bits`: at least 56 are valid then. Eight bytes are read at once, up to 8 behind. */
INLINE void refill(Bits *bits)
{
    uint64_t next;
    __builtin_memcpy(&next, bits->at, 8);
    bits->buffer |= __builtin_bswap64(next) >> bits->count;
    bits->at += (63 - bits->count) >> 3;
    bits->count |= 56;
}

INLINE void drop(Bits *bits, int n)
{
    bits->buffer <<= n;
    bits->count -= n;
}

/* RECEIVE: n bits, 1 to 16. */
INLINE int take(Bits *bits, int n)
{
    int value = (int)(bits->buffer >> (64 - n));
    drop(bits, n);
    return value;
}

/* EXTEND (figure F.12). */
INLINE int extend(int value, int n)
{
    return value < 1 << (n - 1) ? value - (1 << n) + 1 : value;
}

/* DECODE (figure F.16); -1: no code. */
INLINE int decode_symbol(Bits *bits, const HuffmanTable *table)
{
    Symbol symbol = table->symbols[bits->buffer >> (64 - LOOKUP)];
    if (!symbol.bits && symbol.advance) {
        drop(bits, symbol.advance);
        return symbol.value;
    }
    uint32_t next = (uint32_t)(bits->buffer >> 48);
    int length = 1;
    while (length <= 16 && next >= table->limit[length])
        length++;
    if (length > 16)
        return -1;
    drop(bits, length);
    return table->values[(next >> (16 - length)) + table->offset[length]];
}

/* An AC symbol with its extra bits, whatever its length: a coefficient behind `run` zeros (or 0:
 * the run of 16 of ZRL), or EOBn: the end of `eob_run` blocks. */
INLINE bool long_symbol(Bits *bits, const HuffmanTable *table, int *run, int *value,
                        unsigned *eob_run)
{
    int symbol = decode_symbol(bits, table), size = symbol & 15;
    if (symbol < 0)
        return false;
    *run = symbol >> 4;
    *value = size ? extend(take(bits, size), size) : 0;
    if (!size && *run < 15)
        *eob_run = (1u << *run) + (*run ? (unsigned)take(bits, *run) : 0);
    return true;
}

/* DC's difference, with its extra bits: up to 27. */
INLINE bool decode_dc(Bits *bits, const HuffmanTable *table, int *difference)
{
    Symbol symbol = table->symbols[bits->buffer >> (64 - LOOKUP)];
    if (LIKELY(symbol.bits)) {
        drop(bits, symbol.bits);
        *difference = symbol.value;
        return true;
    }
    int size = decode_symbol(bits, table);
    if (size < 0)
        return false;
    *difference = size ? extend(take(bits, size), size) : 0;
    return true;
}

INLINE uint8_t *samples_of(const Component *c, int x, int y)
{
    return c->samples + (ptrdiff_t)y * c->n * c->stride + (ptrdiff_t)x * c->n;
}

/* Not 0: a DC coefficient that no 8-bit image has. (The first one is found before any product is
 * too large for 32 bits.) */
INLINE unsigned dc_beyond(const Component *c, int dc)
{
    return ((unsigned)dc * (unsigned)c->quant[0] + 2048) >> 12;
}

/* The sample of a block of DC alone, at every scale. */
INLINE uint8_t dc_sample(const Component *c, int dc)
{
    int value = (int)((unsigned)dc * (unsigned)c->quant[0] + 4) >> 3;
    value += 128;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

INLINE void fill_flat(uint8_t *out, ptrdiff_t stride, int n, uint8_t sample)
{
    uint64_t row = sample * (uint64_t)0x0101010101010101;
    for (int y = 0; y < n; y++, out += stride) {
        if (n == 8)
            __builtin_memcpy(out, &row, 8);
        else if (n == 4)
            __builtin_memcpy(out, &row, 4);
        else
            __builtin_memcpy(out, &row, 2);
    }
}

/* Samples of `count` neighbouring blocks, which are zeroed where they were not; `ends`: 1 where
 * there is DC alone. */
INLINE void put_blocks(const Component *c, int16_t (*blocks)[BLOCK], const uint8_t *ends, int count,
                       uint8_t *out)
{
    for (int i = 0; i < count; i += 2, out += 2 * c->n) {
        bool both = i + 1 < count;
        if (both && (ends[i] > 1 || ends[i + 1] > 1)) {
            kernels->idct_pair[c->n](blocks[i], c->quant, out, c->stride);
        } else if (ends[i] > 1) {
            kernels->idct[c->n](blocks[i], c->quant, out, c->stride);
        } else {
            fill_flat(out, c->stride, c->n, dc_sample(c, blocks[i][0]));
            if (both)
                fill_flat(out + c->n, c->stride, c->n, dc_sample(c, blocks[i + 1][0]));
        }
    }
}

#endif
