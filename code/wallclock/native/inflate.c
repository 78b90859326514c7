/* A zlib stream (RFC 1950, RFC 1951) into memory of a known size. Less is taken than zlib takes; of
 * what is, the bytes are the same, and their Adler-32 is checked. */
#include "native.h"

#include <string.h>

/* Bits of a table's index; for what longer codes have behind these there is another table. */
enum { LITERAL_BITS = 11, DISTANCE_BITS = 9, MOST_BITS = 15 };
enum { N_LITERALS = 288, N_DISTANCES = 32, N_LENGTHS = 19, END_OF_BLOCK = 256 };
/* An entry of a table: in bits 0 to 7 how many to drop, in 8 to 11 how many of them are the code,
 * behind which a length or distance has more; flags; and from bit 16 on a literal, the least length
 * or distance, or where the other table begins. */
enum { LITERAL = 1 << 15, OTHER_TABLE = 1 << 14, END = 1 << 13, INVALID = 1 << 12 };
enum { CODE = 8, VALUE = 16 };
#define MASK(n) (((uint64_t)1 << (n)) - 1)

typedef struct {
    /* Each table behind the first has two codes at least. */
    uint32_t literals[(1 << LITERAL_BITS) + (N_LITERALS / 2 << (MOST_BITS - LITERAL_BITS))];
    uint32_t distances[(1 << DISTANCE_BITS) + (N_DISTANCES / 2 << (MOST_BITS - DISTANCE_BITS))];
} Tables;

typedef struct {
    const uint8_t *at, *end;      /* 16 bytes behind the end can be read */
    uint64_t bits;
    unsigned n;
} Bits;

typedef struct { uint8_t *at, *begin, *end; } Output;

/* To 56 bits at least. The bits above those counted are those that are loaded again. */
INLINE void refill(Bits *from)
{
    uint64_t bytes;
    memcpy(&bytes, from->at, sizeof bytes);
    from->bits |= bytes << from->n;
    from->at += (63 - from->n) >> 3;
    from->n |= 56;
}

INLINE void drop(Bits *from, unsigned n)
{
    from->bits >>= n;
    from->n -= n;
}

INLINE unsigned take(Bits *from, unsigned n)
{
    unsigned bits = (unsigned)(from->bits & MASK(n));
    drop(from, n);
    return bits;
}

/* Behind the last byte of which a bit was used. */
INLINE const uint8_t *used(const Bits *from)
{
    return from->at - (from->n >> 3);
}

/* --- tables (RFC 1951, 3.2.2 and 3.2.5) ---------------------------------------------------- */

static uint32_t entry_of_literal(unsigned symbol)
{
    static const uint8_t least[] = {3,  4,  5,  6,  7,  8,  9,  10, 11, 13,  15,  17,  19,  23,
                                    27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227};
    if (symbol < END_OF_BLOCK)
        return symbol << VALUE | LITERAL;
    if (symbol == END_OF_BLOCK)
        return END;
    symbol -= END_OF_BLOCK + 1;
    if (symbol >= sizeof least)
        return symbol == sizeof least ? 258u << VALUE : INVALID;
    return (uint32_t)least[symbol] << VALUE | (symbol < 8 ? 0 : symbol / 4 - 1);
}

static uint32_t entry_of_distance(unsigned symbol)
{
    if (symbol < 4)
        return (symbol + 1) << VALUE;
    unsigned extra = symbol / 2 - 1;
    return symbol < 30 ? (((2 + symbol % 2) << extra) + 1) << VALUE | extra : INVALID;
}

static uint32_t entry_of_length(unsigned symbol)
{
    return symbol << VALUE;
}

/* Bits of a code are in reverse: its first is the lowest. */
static unsigned next_code(unsigned code, unsigned length)
{
    unsigned bit = 1u << (length - 1);
    for (; code & bit; bit >>= 1)
        code ^= bit;
    return code | bit;
}

/* Entries of two literals, where both codes fit: a lookup and a branch less. */
static void join_literals(uint32_t *table)
{
    for (unsigned i = 1 << LITERAL_BITS; i--;) {
        unsigned bits = table[i] & 255;
        uint32_t next = table[i >> bits];
        if (table[i] & next & LITERAL && bits + (next & 255) <= LITERAL_BITS)
            table[i] += ((next >> VALUE) << (VALUE + 8)) + (1 << CODE) + (next & 255);
    }
}

/* False: the lengths are of too many codes, or too few. */
static bool build(uint32_t *table, unsigned bits, const uint8_t *lengths, unsigned n,
                  uint32_t (*entry_of)(unsigned symbol))
{
    unsigned count[MOST_BITS + 1] = {0}, first[MOST_BITS + 1], n_codes = 0, longest = 0;
    unsigned room = 1u << MOST_BITS, code = 0, mask = (1u << bits) - 1, last = ~0u;
    uint16_t symbols[N_LITERALS];
    for (unsigned i = 0; i < n; i++)
        count[lengths[i]]++;
    for (unsigned length = 1; length <= MOST_BITS; length++) {
        first[length] = n_codes;
        n_codes += count[length];
        room -= count[length] << (MOST_BITS - length); /* below 0 it wraps */
        longest = count[length] ? length : longest;
    }
    /* Of distances there may be none, or one of one bit. */
    bool alone = entry_of == entry_of_distance && n_codes <= 1 && longest <= 1;
    if (room && !alone)
        return false;
    for (unsigned i = 0; i < n; i++)
        if (lengths[i])
            symbols[first[lengths[i]]++] = (uint16_t)i;
    for (unsigned i = 0; alone && i <= mask; i++)
        table[i] = INVALID;
    unsigned width = longest > bits ? longest - bits : 0; /* of other tables */
    uint32_t *other = table, *end = table + mask + 1;
    for (unsigned i = 0; i < n_codes; i++) {
        unsigned length = lengths[symbols[i]], rest = length > bits ? length - bits : length;
        uint32_t entry = entry_of(symbols[i]);
        entry += (entry & LITERAL ? 1 : rest) << CODE | rest;
        if (length <= bits) {
            for (unsigned j = code; j <= mask; j += 1u << rest)
                table[j] = entry;
        } else {
            if ((code & mask) != last) {
                last = code & mask;
                other = end;
                end += (size_t)1 << width;
                table[last] =
                    (uint32_t)(other - table) << VALUE | OTHER_TABLE | width << CODE | bits;
            }
            for (unsigned j = code >> bits; j < 1u << width; j += 1u << rest)
                other[j] = entry;
        }
        code = next_code(code, length);
    }
    if (entry_of == entry_of_literal)
        join_literals(table);
    return true;
}

/* 3.2.7. */
static bool read_tables(Bits *from, Tables *tables)
{
    static const uint8_t order[] = {
        16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
    };
    uint8_t lengths[N_LITERALS + N_DISTANCES] = {0};
    refill(from);
    unsigned n_literals = 257 + take(from, 5), n = n_literals + 1 + take(from, 5);
    unsigned n_lengths = 4 + take(from, 4);
    for (unsigned i = 0; i < n_lengths; i++) {
        refill(from);
        if (used(from) > from->end)
            return false;
        lengths[order[i]] = (uint8_t)take(from, 3);
    }
    if (n_literals > 286 || !build(tables->literals, 7, lengths, N_LENGTHS, entry_of_length))
        return false;
    memset(lengths, 0, N_LENGTHS);
    for (unsigned i = 0; i < n;) {
        refill(from);
        if (used(from) > from->end)
            return false;
        uint32_t entry = tables->literals[from->bits & 127];
        unsigned symbol = entry >> VALUE, repeats = 1, value = symbol;
        drop(from, entry & 255);
        if (symbol >= 16) {
            value = symbol == 16 && i ? lengths[i - 1] : 0;
            repeats = symbol == 18 ? 11 + take(from, 7) : 3 + take(from, symbol == 17 ? 3 : 2);
        }
        if (repeats > n - i || (symbol == 16 && !i))
            return false;
        memset(lengths + i, (int)value, repeats);
        i += repeats;
    }
    return lengths[END_OF_BLOCK] &&
           build(tables->distances, DISTANCE_BITS, lengths + n_literals, n - n_literals,
                 entry_of_distance) &&
           build(tables->literals, LITERAL_BITS, lengths, n_literals, entry_of_literal);
}

/* 3.2.6. */
static bool fixed_tables(Tables *tables)
{
    uint8_t lengths[N_LITERALS];
    memset(lengths, 8, sizeof lengths);
    memset(lengths + 144, 9, 112);
    memset(lengths + 256, 7, 24);
    bool built = build(tables->literals, LITERAL_BITS, lengths, N_LITERALS, entry_of_literal);
    memset(lengths, 5, N_DISTANCES);
    return built && build(tables->distances, DISTANCE_BITS, lengths, N_DISTANCES,
                          entry_of_distance);
}

/* --- blocks -------------------------------------------------------------------------------- */

/* Bytes from `distance` before; up to 15 more are written. */
INLINE uint8_t *copy_match(uint8_t *out, unsigned distance, unsigned length)
{
    uint8_t *end = out + length;
    const uint8_t *from = out - distance;
    uint64_t word;
    if (distance >= sizeof word) {
        for (; out < end; out += 2 * sizeof word, from += 2 * sizeof word)
            for (int i = 0; i < 2; i++) {
                memcpy(&word, from + 8 * i, sizeof word);
                memcpy(out + 8 * i, &word, sizeof word);
            }
    } else {
        /* What repeats every `distance` bytes does so every `step`. */
        unsigned step = 8 - 8 % distance;
        for (int i = 0; i < 8; i++)
            out[i] = from[i];
        memcpy(&word, out, sizeof word);
        for (; out < end; out += step)
            memcpy(out, &word, sizeof word);
    }
    return end;
}

/* What an entry leads to, which may lie in another table. */
INLINE uint32_t last_entry(Bits *from, const uint32_t *table, unsigned bits, uint32_t entry)
{
    if (!(entry & OTHER_TABLE))
        return entry;
    drop(from, bits);
    return table[(entry >> VALUE) + (from->bits & MASK(entry >> CODE & 15))];
}

/* A length or distance, with the bits behind its code. */
INLINE unsigned value_of(Bits *from, uint32_t entry)
{
    unsigned more = (unsigned)((from->bits & MASK(entry & 255)) >> (entry >> CODE & 15));
    drop(from, entry & 255);
    return (entry >> VALUE) + more;
}

/* One or two. */
INLINE uint8_t *write_literals(Bits *from, uint8_t *out, uint32_t entry)
{
    uint16_t bytes = (uint16_t)(entry >> VALUE);
    memcpy(out, &bytes, sizeof bytes);
    drop(from, entry & 255);
    return out + (entry >> CODE & 15);
}

/* A block of codes. A round writes two literals and a match at most. */
INLINE bool read_codes(Bits *stream, const Tables *tables, Output *output)
{
    const uint32_t *literals = tables->literals, *distances = tables->distances;
    Bits from = *stream;
    uint8_t *out = output->at;
    while (used(&from) <= from.end && out <= output->end) {
        refill(&from);
        uint32_t entry = literals[from.bits & MASK(LITERAL_BITS)];
        for (int i = 0; i < 2 && entry & LITERAL; i++) {
            out = write_literals(&from, out, entry);
            entry = literals[from.bits & MASK(LITERAL_BITS)];
        }
        entry = last_entry(&from, literals, LITERAL_BITS, entry);
        if (entry & LITERAL) {
            out = write_literals(&from, out, entry);
            continue;
        }
        unsigned length = value_of(&from, entry);
        if (entry & (END | INVALID)) {
            *stream = from;
            output->at = out;
            return entry & END;
        }
        refill(&from);
        entry = distances[from.bits & MASK(DISTANCE_BITS)];
        entry = last_entry(&from, distances, DISTANCE_BITS, entry);
        unsigned distance = value_of(&from, entry);
        if (entry & INVALID || distance > (size_t)(out - output->begin))
            return false;
        out = copy_match(out, distance, length);
    }
    return false;
}

/* 3.2.4: bytes as they are. */
static bool read_stored(Bits *from, Output *output)
{
    const uint8_t *at = used(from);
    if (from->end - at < 4)
        return false;
    ptrdiff_t n = at[0] | at[1] << 8;
    if ((at[2] | at[3] << 8) != (n ^ 0xFFFF) || n > from->end - at - 4 ||
        n > output->end - output->at)
        return false;
    memcpy(output->at, at + 4, (size_t)n);
    output->at += n;
    *from = (Bits){at + 4 + n, from->end, 0, 0};
    return true;
}

/* RFC 1950, 9. */
typedef struct { uint32_t a, b; } Adler;

INLINE void add(Adler *sum, const uint8_t *bytes, size_t size)
{
    enum { MOST = 4096, PRIME = 65521 }; /* no sum of so many has more than 32 bits */
    while (size) {
        uint32_t n = size < MOST ? (uint32_t)size : MOST, a = 0, b = 0;
        for (uint32_t i = 0; i < n; i++) {
            a += bytes[i];
            b += (n - i) * bytes[i];
        }
        sum->b = (sum->b + n * sum->a + b) % PRIME;
        sum->a = (sum->a + a) % PRIME;
        bytes += n;
        size -= n;
    }
}

INLINE bool read_blocks(Bits *from, Tables *tables, Output *output)
{
    Adler sum = {1, 0};
    for (bool is_last = false; !is_last;) {
        const uint8_t *begin = output->at;
        refill(from);
        is_last = take(from, 1);
        unsigned kind = take(from, 2);
        bool is_read = kind == 0   ? read_stored(from, output)
                       : kind == 1 ? fixed_tables(tables) && read_codes(from, tables, output)
                       : kind == 2 ? read_tables(from, tables) && read_codes(from, tables, output)
                                   : false;
        if (!is_read || used(from) > from->end || output->at > output->end)
            return false;
        add(&sum, begin, (size_t)(output->at - begin)); /* while it is in the cache */
    }
    const uint8_t *at = used(from);
    uint8_t stated[] = {sum.b >> 8 & 255, sum.b & 255, sum.a >> 8 & 255, sum.a & 255};
    return from->end - at == sizeof stated && !memcmp(at, stated, sizeof stated);
}

INLINE ptrdiff_t inflate_all(const uint8_t *bytes, size_t size, uint8_t *out, size_t most)
{
    Tables tables;
    Bits from = {bytes + 2, bytes + size, 0, 0};
    Output output = {out, out, out + most};
    bool is_zlib = size >= 2 && (bytes[0] & 15) == 8 && bytes[0] >> 4 < 8 && !(bytes[1] & 32) &&
                   (bytes[0] << 8 | bytes[1]) % 31 == 0;
    return is_zlib && read_blocks(&from, &tables, &output) ? output.at - out : -1;
}

ptrdiff_t inflate(const uint8_t *bytes, size_t size, uint8_t *out, size_t most)
{
    return inflate_all(bytes, size, out, most);
}

#ifdef HAVE_AVX2
AVX2 ptrdiff_t inflate_avx2(const uint8_t *bytes, size_t size, uint8_t *out, size_t most)
{
    return inflate_all(bytes, size, out, most);
}
#endif
