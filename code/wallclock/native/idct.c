/* Inverse DCTs (T.81, A.3.3): libjpeg-turbo's accurate integer ones, to n x n samples a block.
 *
 * jidctint.c and jidctred.c have the algorithm (Loeffler, Ligtenberg and Moschytz). Repeated here,
 * to the bit, is their vector code, which keeps 16 bits between its steps: products with the
 * quantizer wrap around, so do sums of two inputs, and what the first pass leaves is saturated. So
 * the samples are libjpeg-turbo's for any coefficients, also those that no image has, and nobody
 * needs to check their range.
 */
#include "native.h"

#include <string.h>

enum { CONST_BITS = 13, PASS1_BITS = 2 };
#define FIX(x) ((int)((x) * (1 << CONST_BITS) + 0.5))

/* What a pass leaves; and of the first column of a 2 x 2 transform, what is not saturated. */
#ifdef __aarch64__ /* NEON code cuts both off. */
static inline int16_t saturate_16(int32_t x) { return (int16_t)x; }
static inline int32_t kept(int32_t x) { return (int16_t)x; }
#else
static inline int16_t saturate_16(int32_t x)
{
    return (int16_t)(x < INT16_MIN ? INT16_MIN : x > INT16_MAX ? INT16_MAX : x);
}
static inline int32_t kept(int32_t x) { return x; }
#endif

static inline uint8_t sample_of(int32_t x)
{
    x += 128;
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* Shifts down, rounded, what was computed modulo 2^32, as the vector code does. */
static inline int32_t descale(uint32_t x, int shift)
{
    return (int32_t)(x + (1u << (shift - 1))) >> shift;
}

/* Dequantizes the rows of a block. Returns whether all below the first is zero: then, and only
 * then, libjpeg-turbo's first pass shifts where it otherwise saturates. `skipped`: a row that the
 * transform does not use, or 0. */
static bool dequantize(int16_t *coefficients, const int16_t *quant, int skipped, int16_t v[8][8])
{
    int16_t below = 0;
    for (int k = 0; k < 8; k++)
        for (int c = 0; c < 8; c++) {
            v[k][c] = (int16_t)(coefficients[8 * k + c] * quant[8 * k + c]);
            if (k > 0 && k != skipped)
                below |= coefficients[8 * k + c];
        }
    memset(coefficients, 0, sizeof(int16_t[64]));
    return below == 0;
}

static void shift_first_row(int16_t v[8][8], int rows)
{
    for (int c = 0; c < 8; c++)
        v[0][c] = (int16_t)(v[0][c] * (1 << PASS1_BITS));
    for (int k = 1; k < rows; k++)
        memcpy(v[k], v[0], sizeof v[0]);
}

static void transpose(int16_t v[8][8])
{
    for (int k = 0; k < 8; k++)
        for (int c = 0; c < k; c++) {
            int16_t kept = v[k][c];
            v[k][c] = v[c][k];
            v[c][k] = kept;
        }
}

/* The transform of eight columns, in place. */
static void pass_8(int16_t v[8][8], int shift)
{
    for (int c = 0; c < 8; c++) {
        int x1 = v[1][c], x2 = v[2][c], x3 = v[3][c], x5 = v[5][c], x6 = v[6][c], x7 = v[7][c];
        int t0 = (int16_t)(v[0][c] + v[4][c]) * (1 << CONST_BITS);
        int t1 = (int16_t)(v[0][c] - v[4][c]) * (1 << CONST_BITS);
        int t2 = x2 * FIX(0.541196100) + x6 * (FIX(0.541196100) - FIX(1.847759065));
        int t3 = x2 * (FIX(0.541196100) + FIX(0.765366865)) + x6 * FIX(0.541196100);
        int even[4] = {t0 + t3, t1 + t2, t1 - t2, t0 - t3};

        int z3 = (int16_t)(x7 + x3), z4 = (int16_t)(x5 + x1);
        int y3 = z3 * (FIX(1.175875602) - FIX(1.961570560)) + z4 * FIX(1.175875602);
        int y4 = z3 * FIX(1.175875602) + z4 * (FIX(1.175875602) - FIX(0.390180644));
        int odd[4] = {
            x1 * (FIX(1.501321110) - FIX(0.899976223)) - x7 * FIX(0.899976223) + y4,
            x3 * (FIX(3.072711026) - FIX(2.562915447)) - x5 * FIX(2.562915447) + y3,
            x5 * (FIX(2.053119869) - FIX(2.562915447)) - x3 * FIX(2.562915447) + y4,
            x7 * (FIX(0.298631336) - FIX(0.899976223)) - x1 * FIX(0.899976223) + y3,
        };
        for (int k = 0; k < 4; k++) {
            v[k][c] = saturate_16(descale((uint32_t)(even[k] + odd[k]), shift));
            v[7 - k][c] = saturate_16(descale((uint32_t)(even[k] - odd[k]), shift));
        }
    }
}

void idct_8(int16_t *coefficients, const int16_t *quant, uint8_t *out, ptrdiff_t stride)
{
    int16_t v[8][8];
    if (dequantize(coefficients, quant, 0, v))
        shift_first_row(v, 8);
    else
        pass_8(v, CONST_BITS - PASS1_BITS);
    transpose(v);
    pass_8(v, CONST_BITS + PASS1_BITS + 3);
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++)
            out[y * stride + x] = sample_of(v[x][y]);
}

/* Eight columns to the first four rows, in place. */
static void pass_4(int16_t v[8][8], int shift)
{
    for (int c = 0; c < 8; c++) {
        uint32_t x1 = (uint32_t)v[1][c], x2 = (uint32_t)v[2][c], x3 = (uint32_t)v[3][c];
        uint32_t x5 = (uint32_t)v[5][c], x6 = (uint32_t)v[6][c], x7 = (uint32_t)v[7][c];
        uint32_t t0 = (uint32_t)v[0][c] << (CONST_BITS + 1);
        uint32_t t2 = x2 * FIX(1.847759065) - x6 * FIX(0.765366865);
        uint32_t o0 = x1 * FIX(1.061594337) - x3 * FIX(2.172734803) + x5 * FIX(1.451774981)
                      - x7 * FIX(0.211164243);
        uint32_t o2 = x1 * FIX(2.562915447) + x3 * FIX(0.899976223) - x5 * FIX(0.601344887)
                      - x7 * FIX(0.509795579);
        v[0][c] = saturate_16(descale(t0 + t2 + o2, shift));
        v[1][c] = saturate_16(descale(t0 - t2 + o0, shift));
        v[2][c] = saturate_16(descale(t0 - t2 - o0, shift));
        v[3][c] = saturate_16(descale(t0 + t2 - o2, shift));
    }
}

void idct_4(int16_t *coefficients, const int16_t *quant, uint8_t *out, ptrdiff_t stride)
{
    int16_t v[8][8];
    if (dequantize(coefficients, quant, 4, v))
        shift_first_row(v, 4);
    else
        pass_4(v, CONST_BITS - PASS1_BITS + 1);
    transpose(v);
    pass_4(v, CONST_BITS + PASS1_BITS + 3 + 1);
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 4; x++)
            out[y * stride + x] = sample_of(v[x][y]);
}

/* Rows and columns 1, 3, 5 and 7 of a 2 x 2 transform. */
static inline uint32_t odd_2(const int16_t *x, int step)
{
    return (uint32_t)x[step] * FIX(3.624509785) - (uint32_t)x[3 * step] * FIX(1.272758580)
           + (uint32_t)x[5 * step] * FIX(0.850430095) - (uint32_t)x[7 * step] * FIX(0.720959822);
}

void idct_2(int16_t *coefficients, const int16_t *quant, uint8_t *out, ptrdiff_t stride)
{
    int16_t v[8][8], rows[2][8] = {{0}};
    dequantize(coefficients, quant, 0, v);
    uint32_t first[2];
    for (int c = 0; c < 8; c += 1 + (c > 0)) {
        uint32_t even = (uint32_t)v[0][c] << (CONST_BITS + 2), odd = odd_2(v[0] + c, 8);
        int32_t sums[2] = {descale(even + odd, CONST_BITS - PASS1_BITS + 2),
                           descale(even - odd, CONST_BITS - PASS1_BITS + 2)};
        for (int y = 0; y < 2; y++) {
            rows[y][c] = saturate_16(sums[y]);
            if (c == 0)
                first[y] = (uint32_t)kept(sums[y]) << (CONST_BITS + 2);
        }
    }
    for (int y = 0; y < 2; y++) {
        uint32_t odd = odd_2(rows[y], 1);
        out[y * stride] = sample_of(descale(first[y] + odd, CONST_BITS + PASS1_BITS + 3 + 2));
        out[y * stride + 1] = sample_of(descale(first[y] - odd, CONST_BITS + PASS1_BITS + 3 + 2));
    }
}

#define PAIR(n)                                                                               \
    void idct_pair_##n(int16_t *coefficients, const int16_t *quant, uint8_t *out,             \
                       ptrdiff_t stride)                                                      \
    {                                                                                         \
        idct_##n(coefficients, quant, out, stride);                                           \
        idct_##n(coefficients + 64, quant, out + n, stride);                                  \
    }
PAIR(2)
PAIR(4)
PAIR(8)
