/* Inverse DCTs (T.81, A.3.3): libjpeg-turbo's accurate integer ones, to n x n samples a block.
 *
 * jidctint.c and jidctred.c have the algorithm (Loeffler, Ligtenberg and Moschytz). Repeated here,
 * to the bit, is their vector code, which keeps 16 bits between its steps: products with the
 * quantizer wrap around, so do sums of two inputs, and what the first pass leaves is saturated. So
 * the samples are libjpeg-turbo's for any coefficients, also those that no image has: there is
 * no range to check.
 *
 * idct.c includes this for vectors of one block, idct_avx2.c for vectors of two: words of eight
 * columns, or longs of four. They are unsigned, since those wrap around. Each says what BLOCKS,
 * TARGET and IDCT_PAIR(n) are, and has the steps that are declared here.
 */
#include "native.h"

#include <string.h>

enum { CONST_BITS = 13, PASS1_BITS = 2 };
#define FIX(x) ((int)((x) * (1 << CONST_BITS) + 0.5))

#ifdef __aarch64__
enum { CUTS_OFF = 1 }; /* what saturates elsewhere is cut off by libjpeg-turbo's code for NEON */
#else
enum { CUTS_OFF = 0 };
#endif

typedef enum { LOW, HIGH } Half; /* of a vector, or of the half of it that is a block's */
typedef uint8_t Bytes __attribute__((vector_size(16 * BLOCKS)));
typedef uint16_t Words __attribute__((vector_size(16 * BLOCKS)));
typedef uint32_t Longs __attribute__((vector_size(16 * BLOCKS)));
typedef uint64_t Quads __attribute__((vector_size(16 * BLOCKS)));
typedef int32_t Signed __attribute__((vector_size(16 * BLOCKS)));

INLINE TARGET Words load_row(const int16_t *block, const int16_t *next);
INLINE TARGET Words interleave(Words a, Words b, Half half);
INLINE TARGET Longs interleave_longs(Longs a, Longs b, Half half);
INLINE TARGET Quads interleave_quads(Quads a, Quads b, Half half);
/* Of each pair of words: first * its first + second * its second. */
INLINE TARGET Longs dot(Words pairs, int first, int second);
INLINE TARGET Words narrow(Longs low, Longs high, int shift);
INLINE TARGET Bytes samples_of_words(Words low, Words high);

/* x << bits, and half of what `shift` will drop, so that it rounds. */
INLINE TARGET Longs widen(Words x, Half half, int bits, int shift)
{
    Words zero = {0};
    Signed high = (Signed)interleave(zero, x, half) >> (16 - bits);
    return (Longs)high + (1u << (shift - 1));
}

/* libjpeg-turbo's first pass saturates, but not where all rows below the first are zero: it shifts
 * then, and cuts off. What is cut off there is cut off here before. */
INLINE TARGET void cut_first_rows(const int16_t *coefficients, int unused, Words *first)
{
    for (int block = 0; block < BLOCKS; block++, coefficients += 64) {
        int below = 0;
        for (int k = 8; k < 64; k++)
            below |= k / 8 == unused ? 0 : coefficients[k];
        for (int c = 8 * block; !below && c < 8 * block + 8; c++)
            (*first)[c] = (uint16_t)((int16_t)((*first)[c] << PASS1_BITS) >> PASS1_BITS);
    }
}

/* Dequantized rows. The coefficients are zeroed. `unused`: the row that no sample depends on, or 0;
 * -1: libjpeg-turbo never shifts. */
INLINE TARGET void load_rows(int16_t *coefficients, const int16_t *quant, int unused, Words v[8])
{
    for (int k = 0; k < 64; k += 8)
        v[k / 8] = load_row(coefficients + k, coefficients + 64 + k) *
                   load_row(quant + k, quant + k);
    Quads large = (Quads)((v[0] + (1 << 13)) >> 14); /* not 0: below -2^13, or not below 2^13 */
    uint64_t any = 0;
    for (int i = 0; i < 2 * BLOCKS; i++)
        any |= large[i];
    if (__builtin_expect(unused >= 0 && any, 0))
        cut_first_rows(coefficients, unused, v);
    /* Volatile, or gcc makes a `rep stos` of it: 30 -> 20 ns for two blocks. */
    for (int k = 0; k < 8; k++)
        ((volatile Words *)(void *)coefficients)[k] = (Words){0};
}

INLINE TARGET void half_8(const Words v[8], Half half, int shift, Longs out[8])
{
    Longs t0 = widen(v[0] + v[4], half, CONST_BITS, shift);
    Longs t1 = widen(v[0] - v[4], half, CONST_BITS, shift);
    Words x26 = interleave(v[2], v[6], half);
    Longs t2 = dot(x26, FIX(0.541196100), FIX(0.541196100) - FIX(1.847759065));
    Longs t3 = dot(x26, FIX(0.541196100) + FIX(0.765366865), FIX(0.541196100));
    Longs even[4] = {t0 + t3, t1 + t2, t1 - t2, t0 - t3};

    Words z34 = interleave(v[7] + v[3], v[5] + v[1], half);
    Longs y3 = dot(z34, FIX(1.175875602) - FIX(1.961570560), FIX(1.175875602));
    Longs y4 = dot(z34, FIX(1.175875602), FIX(1.175875602) - FIX(0.390180644));
    Words x17 = interleave(v[1], v[7], half), x35 = interleave(v[3], v[5], half);
    Longs odd[4] = {
        dot(x17, FIX(1.501321110) - FIX(0.899976223), -FIX(0.899976223)) + y4,
        dot(x35, FIX(3.072711026) - FIX(2.562915447), -FIX(2.562915447)) + y3,
        dot(x35, -FIX(2.562915447), FIX(2.053119869) - FIX(2.562915447)) + y4,
        dot(x17, -FIX(0.899976223), FIX(0.298631336) - FIX(0.899976223)) + y3,
    };
    for (int k = 0; k < 4; k++) {
        out[k] = even[k] + odd[k];
        out[7 - k] = even[k] - odd[k];
    }
}

INLINE TARGET void pass_8(Words v[8], int shift)
{
    Longs low[8], high[8];
    half_8(v, LOW, shift, low);
    half_8(v, HIGH, shift, high);
    for (int k = 0; k < 8; k++)
        v[k] = narrow(low[k], high[k], shift);
}

INLINE TARGET void transpose(Words v[8])
{
    Longs a[8], b[8];
    for (int k = 0; k < 8; k++)
        a[k] = (Longs)interleave(v[k / 2 * 2], v[k / 2 * 2 + 1], k % 2);
    for (int k = 0; k < 8; k++)
        b[k] = interleave_longs(a[k / 4 * 4 + k / 2 % 2], a[k / 4 * 4 + k / 2 % 2 + 2], k % 2);
    for (int k = 0; k < 8; k++)
        v[k] = (Words)interleave_quads((Quads)b[k / 2], (Quads)b[k / 2 + 4], k % 2);
}

INLINE TARGET void transform_8(int16_t *coefficients, const int16_t *quant, uint8_t *out,
                               ptrdiff_t stride)
{
    Words v[8];
    load_rows(coefficients, quant, 0, v);
    pass_8(v, CONST_BITS - PASS1_BITS);
    transpose(v);
    pass_8(v, CONST_BITS + PASS1_BITS + 3);
    transpose(v);
    for (int y = 0; y < 8; y += 2) {
        Quads rows = (Quads)samples_of_words(v[y], v[y + 1]);
        for (int i = 0; i < 2 * BLOCKS; i++) {
            uint64_t row = rows[i];
            memcpy(out + (y + i % 2) * stride + i / 2 * 8, &row, sizeof row);
        }
    }
}

/* Of x13 the elements 1 and 3 alternate, and so on; t0 is element 0, widened. */
INLINE TARGET void columns_4(Words x13, Words x57, Words x26, Longs t0, Longs out[4])
{
    Longs t2 = dot(x26, FIX(1.847759065), -FIX(0.765366865));
    Longs o0 = dot(x13, FIX(1.061594337), -FIX(2.172734803)) +
               dot(x57, FIX(1.451774981), -FIX(0.211164243));
    Longs o2 = dot(x13, FIX(2.562915447), FIX(0.899976223)) +
               dot(x57, -FIX(0.601344887), -FIX(0.509795579));
    out[0] = t0 + t2 + o2;
    out[1] = t0 - t2 + o0;
    out[2] = t0 - t2 - o0;
    out[3] = t0 + t2 - o2;
}

INLINE TARGET void transform_4(int16_t *coefficients, const int16_t *quant, uint8_t *out,
                               ptrdiff_t stride)
{
    enum { FIRST = CONST_BITS - PASS1_BITS + 1, SECOND = CONST_BITS + PASS1_BITS + 3 + 1 };
    Words v[8], rows[4], columns[4]; /* two columns in each */
    Longs sums[2][4];
    load_rows(coefficients, quant, 4, v);
    for (int half = LOW; half <= HIGH; half++)
        columns_4(interleave(v[1], v[3], half), interleave(v[5], v[7], half),
                  interleave(v[2], v[6], half),
                  widen(v[0], half, CONST_BITS + 1, FIRST), sums[half]);
    for (int y = 0; y < 4; y++)
        rows[y] = narrow(sums[LOW][y], sums[HIGH][y], FIRST);
    for (int k = 0; k < 4; k++)
        columns[k] = (Words)interleave_longs((Longs)interleave(rows[0], rows[1], k / 2),
                                             (Longs)interleave(rows[2], rows[3], k / 2), k % 2);
    columns_4(interleave(columns[0], columns[1], HIGH),
              interleave(columns[2], columns[3], HIGH),
              interleave(columns[1], columns[3], LOW),
              widen(columns[0], LOW, CONST_BITS + 1, SECOND), sums[0]);
    Words even = narrow(sums[0][0], sums[0][2], SECOND);
    Words odd = narrow(sums[0][1], sums[0][3], SECOND);
    Longs left = (Longs)interleave(even, odd, LOW), right = (Longs)interleave(even, odd, HIGH);
    Longs samples = (Longs)samples_of_words((Words)interleave_longs(left, right, LOW),
                                            (Words)interleave_longs(left, right, HIGH));
    for (int i = 0; i < 4 * BLOCKS; i++) {
        uint32_t row = samples[i];
        memcpy(out + i % 4 * stride + i / 4 * 4, &row, sizeof row);
    }
}

/* Of column 0 alone 32 bits are kept between the passes. */
INLINE TARGET void transform_2(int16_t *coefficients, const int16_t *quant, uint8_t *out,
                               ptrdiff_t stride)
{
    enum { FIRST = CONST_BITS - PASS1_BITS + 2, SECOND = CONST_BITS + PASS1_BITS + 3 + 2 };
    Words v[8], rows[2];
    Longs sums[2][2];
    load_rows(coefficients, quant, -1, v); /* never cut */
    for (int half = LOW; half <= HIGH; half++) {
        Longs even = widen(v[0], half, CONST_BITS + 2, FIRST);
        Longs odd = dot(interleave(v[1], v[3], half), FIX(3.624509785), -FIX(1.272758580)) +
                    dot(interleave(v[5], v[7], half), FIX(0.850430095), -FIX(0.720959822));
        sums[0][half] = even + odd;
        sums[1][half] = even - odd;
    }
    for (int y = 0; y < 2; y++)
        rows[y] = narrow(sums[y][LOW], sums[y][HIGH], FIRST);
    /* Elements 1 and 3, and then 5 and 7, of each row side by side in the upper half. */
    Quads low = (Quads)interleave(rows[0], rows[1], LOW);
    Quads high = (Quads)interleave(rows[0], rows[1], HIGH);
    Words front = (Words)interleave_quads(low, high, LOW);
    Words back = (Words)interleave_quads(low, high, HIGH);
    Quads odd = (Quads)(dot(interleave(front, back, LOW), FIX(3.624509785), -FIX(1.272758580)) +
                        dot(interleave(front, back, HIGH), FIX(0.850430095), -FIX(0.720959822)));
    Longs across = (Longs)interleave_quads(odd, odd, HIGH);
    Signed first = (Signed)interleave_longs(sums[0][LOW], sums[1][LOW], LOW);
    first >>= FIRST;
    if (CUTS_OFF)
        first = first << 16 >> 16;
    Longs even = ((Longs)first << (CONST_BITS + 2)) + (1u << (SECOND - 1));
    Longs left = even + across, right = even - across;
    Words both = narrow(interleave_longs(left, right, LOW), left, SECOND);
    Words samples = (Words)samples_of_words(both, both);
    for (int i = 0; i < 2 * BLOCKS; i++) {
        uint16_t row = samples[i / 2 * 8 + i % 2];
        memcpy(out + i % 2 * stride + i / 2 * 2, &row, sizeof row);
    }
}

#define TRANSFORM(n)                                                                       \
    TARGET void IDCT_PAIR(n)(int16_t *coefficients, const int16_t *quant, uint8_t *out,    \
                             ptrdiff_t stride)                                             \
    {                                                                                      \
        for (int block = 0; block < 2; block += BLOCKS)                                    \
            transform_##n(coefficients + 64 * block, quant, out + n * block, stride);      \
    }
TRANSFORM(2)
TRANSFORM(4)
TRANSFORM(8)
