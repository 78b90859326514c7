/* PNG of 8 bits, not interlaced: chunks, and rows without their filters. What Pillow makes of a
 * file is what is made here; anything that it would look at twice is left to it. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

enum { BEGINNING = 8, CHUNK = 12, MOST_SIDE = 1 << 24, COLOURS = 256 };
enum { GREY_TYPE = 0, RGB_TYPE = 2, PALETTE_TYPE = 3, ALPHA_TYPE = 4 };
/* Deflated, a byte is 1,032 at most. Pillow inflates a megabyte of an ancillary chunk, and keeps 64
 * of text. */
enum { MOST_RATIO = 1032, MOST_INFLATED = 1 << 20, MOST_TEXT = 16 << 20 };

typedef struct {
    int width, height, channels, type;
    const uint8_t *palette, *profile, *data; /* NULL: none; the first of the IDAT chunks */
    size_t n_palette, n_profile, n_data;     /* bytes; of all IDAT chunks */
    size_t text;                             /* bytes, at most */
    int chunks, n_idat;
    bool exif, transparent, behind;          /* `behind`: the pixels */
} Png;

static uint32_t number(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

typedef struct { const uint8_t *body; uint32_t size, name; } Piece;
#define NAME(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

static bool has_crc(const Piece *piece)
{
    static const uint32_t of_nibble[] = {
        0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC,
        0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
        0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
        0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    uint32_t sum = ~0u;
    const uint8_t *end = piece->body + piece->size;
    for (const uint8_t *at = piece->body - 4; at < end; at++) {
        sum = sum >> 4 ^ of_nibble[(sum ^ *at) & 15];
        sum = sum >> 4 ^ of_nibble[(sum ^ *at >> 4) & 15];
    }
    return ~sum == number(end);
}

/* --- chunks -------------------------------------------------------------------------------- */

static Status read_ihdr(const Piece *piece, Png *png)
{
    static const uint8_t channels[] = {[GREY_TYPE] = 1, [RGB_TYPE] = 3, [PALETTE_TYPE] = 1,
                                       [ALPHA_TYPE] = 2, [RGB_TYPE | ALPHA_TYPE] = 4};
    const uint8_t *body = piece->body;
    if (piece->size != 13 || piece->name != NAME('I', 'H', 'D', 'R') || !has_crc(piece))
        return IRREGULAR;
    uint32_t width = number(body), height = number(body + 4);
    png->type = body[9];
    png->channels = png->type < (int)sizeof channels ? channels[png->type] : 0;
    if (body[8] != 8 || !png->channels || width > MOST_SIDE || height > MOST_SIDE || body[12])
        return OTHER_PROCESS;
    png->width = (int)width;
    png->height = (int)height;
    return width && height && !body[10] && !body[11] ? DECODED : IRREGULAR;
}

/* A keyword, a zero and what follows it; text that Pillow reads for EXIF is noted. */
static bool read_text(const Piece *piece, Png *png)
{
    const uint8_t *end = piece->body + piece->size;
    const uint8_t *zero = memchr(piece->body, 0, piece->size);
    bool is_deflated = piece->name == NAME('z', 'T', 'X', 't');
    if (!zero || zero + 1 == end)
        return !is_deflated;
    if (is_deflated && zero[1])
        return false;
    is_deflated |= piece->name == NAME('i', 'T', 'X', 't') && zero[1];
    png->exif |= memchr("eRXx", piece->body[0], 4) != NULL;
    png->text += piece->size + (is_deflated ? MOST_INFLATED : 0);
    return png->text <= MOST_TEXT && (!is_deflated || piece->size < MOST_INFLATED / MOST_RATIO);
}

static bool read_profile(const Piece *piece, Png *png)
{
    const uint8_t *zero = memchr(piece->body, 0, piece->size);
    if (!zero || zero + 2 > piece->body + piece->size || zero[1] || png->profile)
        return false;
    png->profile = zero + 2;
    png->n_profile = (size_t)(piece->body + piece->size - png->profile);
    return true;
}

static bool read_palette(const Piece *piece, Png *png)
{
    if (png->palette || png->behind || piece->size % 3 || piece->size > 3 * COLOURS)
        return false;
    png->palette = piece->body;
    png->n_palette = piece->size;
    return png->type >= RGB_TYPE && png->type != ALPHA_TYPE;
}

static bool read_transparency(const Piece *piece, Png *png)
{
    bool fits = png->type == PALETTE_TYPE ? piece->size <= COLOURS
                : png->type == RGB_TYPE   ? piece->size == 6
                                          : png->type == GREY_TYPE && piece->size == 2;
    bool is_first = !png->transparent && !png->behind;
    png->transparent = true;
    return fits && is_first;
}

/* Pillow checks no CRC of IDAT chunks, and neither is this; Adler-32 is in `inflate`. */
static bool read_idat(const Piece *piece, Png *png)
{
    if (png->behind)
        return false;
    if (!png->n_idat++)
        png->data = piece->body;
    png->n_data += piece->size;
    return true;
}

/* False: Pillow, or another version of it, might refuse the file for this chunk, or read it as an
 * animation. */
static bool read_piece(const Piece *piece, Png *png)
{
    if (piece->name == NAME('I', 'D', 'A', 'T'))
        return read_idat(piece, png);
    png->behind = png->n_idat > 0;
    if (!has_crc(piece))
        return false;
    switch (piece->name) {
    case NAME('P', 'L', 'T', 'E'):
        return read_palette(piece, png);
    case NAME('t', 'R', 'N', 'S'):
        return read_transparency(piece, png);
    case NAME('i', 'C', 'C', 'P'):
        return read_profile(piece, png);
    case NAME('t', 'E', 'X', 't'):
    case NAME('z', 'T', 'X', 't'):
    case NAME('i', 'T', 'X', 't'):
        return read_text(piece, png);
    case NAME('e', 'X', 'I', 'f'):
        png->exif = true;
        return true;
    case NAME('g', 'A', 'M', 'A'):
        return piece->size == 4;
    case NAME('c', 'H', 'R', 'M'):
        return piece->size == 32;
    case NAME('s', 'R', 'G', 'B'):
        return piece->size == 1;
    case NAME('p', 'H', 'Y', 's'):
        return piece->size == 9;
    case NAME('a', 'c', 'T', 'L'):
    case NAME('f', 'c', 'T', 'L'):
    case NAME('f', 'd', 'A', 'T'):
        return false;
    case NAME('I', 'E', 'N', 'D'):
        return !piece->size;
    default:
        return piece->name >> 29 & 1; /* ancillary */
    }
}

static bool next_piece(const uint8_t **at, const uint8_t *end, Piece *piece)
{
    if (end - *at < CHUNK)
        return false;
    *piece = (Piece){*at + 8, number(*at), number(*at + 4)};
    for (int i = 4; i < 8; i++)
        if (((*at)[i] | 32) < 'a' || ((*at)[i] | 32) > 'z')
            return false;
    if (piece->size > (size_t)(end - *at - CHUNK))
        return false;
    *at += CHUNK + piece->size;
    return true;
}

static size_t stride(const Png *png)
{
    return 1 + (size_t)png->width * (size_t)png->channels;
}

bool is_png(const uint8_t *bytes, size_t size)
{
    return size >= BEGINNING && !memcmp(bytes, "\x89PNG\r\n\x1a\n", BEGINNING);
}

static Status read_png(const uint8_t *bytes, size_t size, Png *png)
{
    const uint8_t *at = bytes + BEGINNING, *end = bytes + size;
    Piece piece;
    if (!is_png(bytes, size) || !next_piece(&at, end, &piece))
        return IRREGULAR;
    Status status = read_ihdr(&piece, png);
    while (!status && piece.name != NAME('I', 'E', 'N', 'D')) {
        png->chunks++;
        if (!next_piece(&at, end, &piece) || !read_piece(&piece, png))
            return IRREGULAR;
    }
    bool is_whole = png->data && (png->type != PALETTE_TYPE || png->palette) &&
                    (size_t)png->height * stride(png) / MOST_RATIO <= png->n_data;
    return status || is_whole ? status : IRREGULAR;
}

Status png_header(const uint8_t *bytes, size_t size, Header *header)
{
    Png png = {0};
    Status status = read_png(bytes, size, &png);
    if (!status)
        *header = (Header){.width = png.width, .height = png.height, .components = png.channels,
                           .orientation = !png.exif, .segments = png.chunks, .scans = 1,
                           .passes = 1};
    return status;
}

/* --- filters (PNG, 9.2) -------------------------------------------------------------------- */

enum { NONE, SUB, UP, AVERAGE, PAETH };

/* A row takes the place of its bytes, from that of its filter's number on: what is written, a few
 * bytes more at a time than are wanted, has been read. Above the first row is one of zeros. */
static void one_row(uint8_t *row, const uint8_t *above, int n, int channels)
{
    int filter = row[0], x = 0;
    if (filter == NONE)
        memmove(row, row + 1, (size_t)n);
    else if (filter == UP) {
        typedef uint8_t Run __attribute__((vector_size(16)));
        for (Run raw, up; x <= n - (int)sizeof raw; x += (int)sizeof raw) {
            memcpy(&raw, row + 1 + x, sizeof raw);
            memcpy(&up, above + x, sizeof up);
            raw += up;
            memcpy(row + x, &raw, sizeof raw);
        }
        for (; x < n; x++)
            row[x] = (uint8_t)(row[1 + x] + above[x]);
    } else
        for (; x < n; x++) {
            int a = x < channels ? 0 : row[x - channels], b = above[x];
            int c = x < channels ? 0 : above[x - channels];
            int paeth = abs(b - c) <= abs(a - c) && abs(b - c) <= abs(a + b - 2 * c) ? a
                        : abs(a - c) <= abs(a + b - 2 * c)                           ? b
                                                                                     : c;
            int guess = filter == SUB ? a : filter == AVERAGE ? (a + b) / 2 : paeth;
            row[x] = (uint8_t)(row[1 + x] + guess);
        }
}

/* A pixel waits for the one before it. So two rows are made at a time, the lower one a pixel
 * behind: four lanes each, in as many steps as one row has. */
typedef int16_t Lanes __attribute__((vector_size(16)));
typedef uint64_t Halves __attribute__((vector_size(16)));
typedef struct { Lanes left, upper_left, filter; } Steps;

INLINE uint64_t four_bytes(const uint8_t *from)
{
    uint32_t bytes;
    memcpy(&bytes, from, sizeof bytes);
    return bytes;
}

INLINE Lanes load_two(const uint8_t *upper, const uint8_t *lower)
{
    typedef uint8_t Bytes __attribute__((vector_size(16)));
    Bytes bytes = (Bytes)(Halves){four_bytes(upper) | four_bytes(lower) << 32};
    return (Lanes)SHUFFLE(Bytes, bytes, (Bytes){0}, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
                          7, 23);
}

INLINE void store(Lanes pixels, int half, uint8_t *to)
{
    typedef uint8_t Bytes __attribute__((vector_size(8)));
    uint32_t bytes = (uint32_t)((uint64_t)__builtin_convertvector(pixels, Bytes) >> 32 * half);
    memcpy(to, &bytes, sizeof bytes);
}

INLINE Lanes halves(Lanes upper, Lanes lower)
{
    return (Lanes)SHUFFLE(Halves, (Halves)upper, (Halves)lower, 0, 2);
}

/* With p = a + b - c the nearest of a, b and c is: the greater of a and b where 3c - a - b is no
 * more than the less of them; the less where it is no less than the greater; or else c. */
INLINE Lanes paeth(Lanes a, Lanes b, Lanes c)
{
    Lanes less, greater, bound = 3 * c - b - a;
    for (int i = 0; i < 8; i++) {
        less[i] = a[i] < b[i] ? a[i] : b[i];
        greater[i] = a[i] < b[i] ? b[i] : a[i];
    }
    Lanes above = bound > less, below = greater > bound;
    return (greater & ~above) | (less & ~below) | (c & above & below);
}

INLINE Lanes step(Steps *steps, const uint8_t *above, Lanes raw, bool all_paeth)
{
    Lanes a = steps->left, b = halves(load_two(above, above), a), c = steps->upper_left;
    Lanes is = steps->filter, guess = paeth(a, b, c);
    if (!all_paeth)
        guess = (a & (is == SUB)) | (b & (is == UP)) | (((a + b) >> 1) & (is == AVERAGE)) |
                (guess & (is == PAETH));
    steps->upper_left = b;
    return steps->left = (raw + guess) & 255;
}

INLINE void two_rows(uint8_t *row, ptrdiff_t stride, int width, int channels, bool all_paeth)
{
    const uint8_t *above = row - stride;
    uint8_t *lower = row + stride;
    Steps steps = {.filter = halves((Lanes){0} + (int16_t)row[0], (Lanes){0} + (int16_t)lower[0])};
    store(step(&steps, above, load_two(row + 1, row + 1), all_paeth), 0, row);
    steps.left = halves(steps.left, (Lanes){0});
    for (int x = 1; x < width; x++, lower += channels) {
        row += channels;
        above += channels;
        Lanes pixels = step(&steps, above, load_two(row + 1, lower + 1), all_paeth);
        store(pixels, 0, row);
        store(pixels, 1, lower);
    }
    store(step(&steps, above, load_two(lower + 1, lower + 1), all_paeth), 1, lower);
}

/* False: a filter that there is not. */
static bool unfilter(uint8_t *row, const Png *png, int n_rows)
{
    ptrdiff_t size = (ptrdiff_t)stride(png);
    for (int y = 0; y < n_rows; y++)
        if (row[y * size] > PAETH)
            return false;
    for (int y = 0; y < n_rows; y++, row += size) {
        bool waits = row[0] != NONE && row[0] != UP && png->channels >= 3 && y + 1 < n_rows;
        if (!waits) {
            one_row(row, row - size, (int)size - 1, png->channels);
            continue;
        }
        bool all_paeth = row[0] == PAETH && row[size] == PAETH;
        if (png->channels == 3 && all_paeth)
            two_rows(row, size, png->width, 3, true);
        else
            two_rows(row, size, png->width, png->channels, false);
        y++;
        row += size;
    }
    return true;
}

/* --- pixels -------------------------------------------------------------------------------- */

/* All IDAT chunks as one; NULL: no memory. */
static const uint8_t *join_data(Scratch *scratch, const Png *png)
{
    const uint8_t *at = png->data - 8;
    uint8_t *joined = png->n_idat > 1 ? scratch_take(scratch, BITS, png->n_data) : NULL;
    if (png->n_idat == 1)
        return png->data;
    for (int i = 0; joined && i < png->n_idat; i++, at += CHUNK + number(at)) {
        memcpy(joined, at + 8, number(at));
        joined += number(at);
    }
    return joined ? joined - png->n_data : NULL;
}

/* Pillow refuses a profile that becomes very large. */
static Status check_profile(Scratch *scratch, const Png *png)
{
    if (!png->profile)
        return DECODED;
    uint8_t *memory = scratch_take(scratch, COEFFICIENTS, MOST_INFLATED + MOST_WRITTEN);
    if (!memory)
        return NO_MEMORY;
    bool is_regular = kernels->inflate(png->profile, png->n_profile, memory, MOST_INFLATED) >= 0;
    return is_regular ? DECODED : IRREGULAR;
}

Status png_decode(Scratch *scratch, const uint8_t *bytes, size_t size, int n_rows,
                  Interleaved *pixels)
{
    Png png = {0};
    Status status = read_png(bytes, size, &png);
    if (!status)
        status = check_profile(scratch, &png);
    if (status)
        return status;
    size_t row = stride(&png), n = row * (size_t)png.height;
    const uint8_t *data = join_data(scratch, &png);
    uint8_t *memory = scratch_take(scratch, SAMPLES, 4 * COLOURS + row + n + MOST_WRITTEN);
    if (!data || !memory)
        return NO_MEMORY;
    uint8_t *first = memory + 4 * COLOURS + row;
    memset(memory, 0, 4 * COLOURS + row);
    if (kernels->inflate(data, png.n_data, first, n) != (ptrdiff_t)n ||
        !unfilter(first, &png, n_rows < png.height ? n_rows : png.height))
        return IRREGULAR;
    *pixels = (Interleaved){first, (ptrdiff_t)row, png.channels, NULL};
    if (png.type == PALETTE_TYPE) {
        memcpy(memory, png.palette, png.n_palette);
        pixels->palette = memory;
    }
    return DECODED;
}
