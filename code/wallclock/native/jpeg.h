/* What the parts of the decoder share: names in comments are those of ITU T.81. */
#ifndef WALLCLOCK_JPEG_H
#define WALLCLOCK_JPEG_H

#include "native.h"

#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* row(…, bmi2) as two functions of type DecodeRow. With BMI2, shifts by a variable number of bits
 * are one instruction: 2 %. */
#define PLAIN_ROW(row)                                            \
    static Status row##_plain(Scan *scan, int y, int x, int n)    \
    {                                                             \
        return row(scan, y, x, n, false);                         \
    }
#ifdef HAVE_AVX2
#define BMI2_ROW(row)                                             \
    AVX2 static Status row##_bmi2(Scan *scan, int y, int x, int n) \
    {                                                             \
        return row(scan, y, x, n, true);                          \
    }
#define BEST(row) (kernels->bmi2 ? row##_bmi2 : row##_plain)
#else
#define BMI2_ROW(row)
#define BEST(row) row##_plain
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "refill() turns eight bytes around");

enum { MAX_COMPONENTS = 3, N_TABLES = 4, BLOCK = 64, SOF2 = 0xC2 };

typedef struct { const uint8_t *at, *end; } Bytes;

/* Blocks are kept in rows of `stored_wide`: those of progressive files all, of others two MCUs.
 * Between images all coefficients but the first of each block are 0. */
typedef struct {
    int id, h, v, tq;               /* Ci, Hi, Vi, Tqi */
    int wide, high;                 /* blocks of the image: a scan of one component has them */
    int padded_wide, padded_high;   /* blocks of whole MCUs */
    int stored_wide;                /* an even number */
    int n;                          /* samples across and down that a block becomes: 1, 2, 4 or 8 */
    uint8_t *samples;
    ptrdiff_t stride;
    _Alignas(32) int16_t quant[BLOCK];      /* Qi, in natural order */
    size_t blocks;                  /* that are kept */
    int16_t *dc;                    /* one a block */
    int16_t (*coefficients)[BLOCK]; /* where n > 1: else no sample needs AC */
    uint64_t *known;                /* which are not 0: position k of the zigzag at bit 63 - k */
    int8_t low[BLOCK];              /* Al of the last scan of each coefficient; -1: none so far */
} Component;

/* A table as DHT has it: 16 counts (BITS), then the symbols (HUFFVAL). */
typedef struct { const uint8_t *counts; size_t size; } TableBytes;

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
 * and `advance` is the length of the code (0: longer than LOOKUP). */
enum { LOOKUP = 11, PAIR_LOOKUP = 10, SKIP_LOOKUP = 12, END = 128 };
typedef struct { int16_t value; uint8_t bits, advance; } Symbol;

/* Up to two coefficients, perhaps with the end of the block behind them (END in `bits`). */
typedef struct { int16_t first, second; uint8_t at_first, at_second, advance, bits; } Pair;

/* As many whole symbols as fit: bits they take, how far they advance in the block (beyond it, if
 * the first has no room), DC's difference (15 bits), whether the block ends there (the sign). */
enum { SKIP_ADVANCE = 8, SKIP_DIFFERENCE = 16 };

typedef struct {
    Symbol symbols[1 << LOOKUP];
    uint32_t limit[18];             /* first 16 bits of the first code that is longer */
    int offset[17];                 /* in `bytes`, of a length's symbols, less its first code */
    uint8_t bytes[16 + 256];
    size_t size;                    /* 0: no table */
} Codes;

/* The tables of a component, DC's and AC's. */
typedef struct {
    Codes codes[2];
    Pair pairs[1 << PAIR_LOOKUP];
    int32_t skips[2][1 << SKIP_LOOKUP];     /* that begin with DC, with AC */
    bool has_pairs, has_skips;
} HuffmanTables;

typedef struct {
    const Frame *frame;
    int n;                                  /* components; 0: there was EOI instead of a scan */
    Component *components[MAX_COMPONENTS];
    int td[MAX_COMPONENTS], ta[MAX_COMPONENTS];
    int first, last, high, low;             /* Ss, Se, Ah, Al */
    int wide, rows;                         /* in MCUs: blocks, if there is one component */
    HuffmanTables *tables[MAX_COMPONENTS];
    int predictions[MAX_COMPONENTS];
    unsigned eob_run;
    unsigned beyond;                        /* not 0: a DC coefficient is out of range */
    Bits bits;
} Scan;

/* markers.c: the parts of a file up to the entropy-coded data of the first or next scan, or EOI. */
extern const uint8_t natural_order[BLOCK];
Status first_scan(Frame *frame, const uint8_t *bytes, size_t size, Scan *scan);
Status next_scan(Frame *frame, Scan *scan);
Status frame_colours(const Frame *frame, Colours *colours);

/* huffman.c */
Status scan_tables(Scratch *scratch, const Frame *frame, Scan *scan);
void need_pairs(HuffmanTables *tables);
void need_skips(HuffmanTables *tables);

/* Decodes n MCUs of row y, from column x on; looks at least once in MOST_UNCHECKED blocks
 * whether it has read beyond the end. */
enum { MOST_UNCHECKED = 60 };
typedef Status DecodeRow(Scan *scan, int y, int x, int n);
/* `decode_row`: NULL where nothing depends on the scan, which is passed over. */
Status decode_scan(Scratch *scratch, Frame *frame, Scan *scan, DecodeRow *decode_row);

/* sequential.c, progressive.c: samples of all components; `scan`: the first. */
Status decode_sequential(Scratch *scratch, Frame *frame, Scan *scan);
Status decode_progressive(Scratch *scratch, Frame *frame, Scan *scan);

/* decode.c: blocks `at` and at + 1 become samples, and are empty then. */
void put_pair(const Component *c, size_t at, uint8_t *out);

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

INLINE bool overrun(const Bits *bits)
{
    return bits->at > bits->end + 8;
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

/* DECODE (figure F.16) and the extra bits: 27 at most. A coefficient behind `run` zeros (or 0: DC,
 * or the run of 16 of ZRL), or EOBn: the end of `eob_run` blocks. */
INLINE bool next_symbol(Bits *bits, const Codes *codes, int *run, int *value, unsigned *eob_run)
{
    Symbol symbol = codes->symbols[bits->buffer >> (64 - LOOKUP)];
    if (symbol.bits) {
        drop(bits, symbol.bits);
        *run = symbol.advance - 1;
        *value = symbol.value;
        if (symbol.advance == END)
            *eob_run = 1;
        return true;
    }
    uint32_t next = (uint32_t)(bits->buffer >> 48);
    int length = symbol.advance ? symbol.advance : LOOKUP + 1;
    while (next >= codes->limit[length])
        length++;
    if (length > 16)
        return false;
    int byte = codes->bytes[(int)(next >> (16 - length)) + codes->offset[length]];
    int size = byte & 15;
    drop(bits, length);
    *run = byte >> 4;
    *value = size ? extend(take(bits, size), size) : 0;
    if (!size && *run < 15)
        *eob_run = (1u << *run) + (*run ? (unsigned)take(bits, *run) : 0);
    return true;
}

/* Not 0: a DC coefficient that no 8-bit image has. (The first one is found before any product is
 * too large for 32 bits.) */
INLINE unsigned dc_beyond(const Component *c, int dc)
{
    return ((unsigned)dc * (unsigned)c->quant[0] + 2048) >> 12;
}

INLINE uint8_t *samples_of(const Component *c, int x, int y)
{
    return c->samples + (ptrdiff_t)y * c->n * c->stride + (ptrdiff_t)x * c->n;
}

/* The sample of a block of DC alone, at every scale. Of a product in 16 bits: vectors hold more. */
INLINE uint8_t dc_sample(int16_t dc, int16_t quant)
{
    int16_t value = (int16_t)(((int16_t)(dc * quant + 4) >> 3) + 128);
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

#endif
