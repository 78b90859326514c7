/* Transforms of a block in a vector: SSE2, NEON, or what the compiler has. */
enum { BLOCKS = 1 };
#define TARGET
#define IDCT_PAIR(n) idct_pair_##n
#include "idct.h"

typedef int16_t SignedWords __attribute__((vector_size(16)));

INLINE Words load_row(const int16_t *block, const int16_t *next)
{
    Words row;
    (void)next;
    memcpy(&row, block, sizeof row);
    return row;
}

INLINE Words interleave(Words a, Words b, Half half)
{
    return half == LOW ? SHUFFLE(Words, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
                       : SHUFFLE(Words, a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

INLINE Longs interleave_longs(Longs a, Longs b, Half half)
{
    return half == LOW ? SHUFFLE(Longs, a, b, 0, 4, 1, 5) : SHUFFLE(Longs, a, b, 2, 6, 3, 7);
}

INLINE Quads interleave_quads(Quads a, Quads b, Half half)
{
    return half == LOW ? SHUFFLE(Quads, a, b, 0, 2) : SHUFFLE(Quads, a, b, 1, 3);
}

INLINE Longs dot(Words pairs, int first, int second)
{
    Signed x = (Signed)pairs;
    return (Longs)((x << 16 >> 16) * first + (x >> 16) * second);
}

INLINE Signed saturated(Longs x, int shift)
{
    Signed value = (Signed)x >> shift;
    if (CUTS_OFF)
        return value;
    Signed over = value > INT16_MAX, under = value < INT16_MIN;
    return (value & ~(over | under)) | (over & INT16_MAX) | (under & INT16_MIN);
}

INLINE Words narrow(Longs low, Longs high, int shift)
{
    Words a = (Words)saturated(low, shift), b = (Words)saturated(high, shift);
    return SHUFFLE(Words, a, b, 0, 2, 4, 6, 8, 10, 12, 14);
}

INLINE Bytes samples_of_words(Words low, Words high)
{
    SignedWords x[2] = {(SignedWords)low, (SignedWords)high};
    for (int i = 0; i < 2; i++) {
        SignedWords over = x[i] > 127, under = x[i] < -128;
        x[i] = ((x[i] & ~(over | under)) | (over & 127) | (under & -128)) + 128;
    }
    return SHUFFLE(Bytes, (Bytes)x[0], (Bytes)x[1], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                   24, 26, 28, 30);
}
