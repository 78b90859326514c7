/* What the parts of the native module share.
 *
 * A JPEG's way: `markers.c` parses the file into a Frame, `sequential.c` or `progressive.c` decodes
 * its entropy-coded data, `idct.h` makes samples of coefficients, and the result is Planes.
 * `rows.c` upsamples them and converts their colours, one row at a time, on demand of `resize.c`,
 * which writes a row of a batch; `binding.c` is what Python sees.
 *
 * A PNG's: `png.c` has its chunks and filters, `inflate.c` its bytes; the result is Interleaved.
 *
 * Regular or not at all: a part that meets anything it does not know, or finds irregular in any
 * way, returns the reason, and the caller decodes the file with libjpeg-turbo or Pillow. The only
 * results are their pixels, bit for bit.
 */
#ifndef WALLCLOCK_NATIVE_H
#define WALLCLOCK_NATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define SHUFFLE(mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(mask, a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif
#if defined(__x86_64__)
#define HAVE_AVX2
#define AVX2 __attribute__((target("avx2,fma,bmi,bmi2,lzcnt,popcnt")))
#define AVX2_INLINE INLINE AVX2
#endif

/* Why a file is left to another decoder; DECODED is 0. `status_name` (markers.c) has the words. */
typedef enum {
    DECODED,
    NOT_READ,        /* no JPEG, or markers or lengths that do not fit the file; no PNG */
    OTHER_PROCESS,   /* arithmetic, lossless, 12 bits, CMYK, a subsampling that is not decoded here;
                        a PNG that is interlaced, or of other than 8 bits */
    IRREGULAR,       /* against the standard, or what libjpeg-turbo or Pillow may refuse */
    UNREFINED,       /* a progressive file whose last bits are missing: libjpeg-turbo smooths it */
    OUT_OF_RANGE,    /* a coefficient that no 8-bit image has */
    SLOWER_HERE,     /* libjpeg-turbo is faster than the plain C of this processor */
    NO_MEMORY
} Status;
const char *status_name(Status status);

/* Memory of one thread, kept from image to image; `scratch_take` returns the same block, or
 * a larger one without what was in it, 64-byte aligned, with 64 readable bytes behind its end, or
 * NULL. Fresh memory is zeroed. */
typedef enum { BITS, COEFFICIENTS, KNOWN, SAMPLES, ROWS, RESIZED, N_BLOCKS } Use;
typedef struct {
    struct { void *memory, *allocated; size_t size; } blocks[N_BLOCKS];
    struct HuffmanCache *tables; /* of files that share them; owned by huffman.c */
} Scratch;

Scratch *scratch_new(void);
void scratch_free(Scratch *scratch);
void *scratch_take(Scratch *scratch, Use use, size_t size);
/* Between images: frees blocks that are too large to keep. */
void scratch_trim(Scratch *scratch);
void huffman_cache_free(struct HuffmanCache *tables);

/* A part of an image, in pixels of the scale that is decoded to. */
typedef struct { int left, top, width, height; } Window;

/* One component after its IDCT: rows of `stride` bytes. Only samples that the wanted window
 * depends on are defined (with the neighbours that upsampling reads). */
typedef struct { uint8_t *samples; ptrdiff_t stride; int width, height; } Plane;

typedef enum { GREY, YCBCR, RGB } Colours;
typedef struct {
    Plane planes[3];
    int n_planes;
    Colours colours;
    int width, height;            /* of the image at this scale: ceil(full / denominator) */
    int across, down;             /* 1 or 2: how many times luma is larger than chroma; RGB: 1 */
    bool smooth;                  /* whether chroma gets jdsample.c's triangle filter ("fancy") */
} Planes;

/* markers.c. What a header says: enough for limits, scale and geometry; nothing is decoded. */
typedef struct {
    int width, height, components;
    uint8_t sof;                  /* 0xC0, 0xC1 or 0xC2 */
    uint8_t sampling;             /* of luma: 0x11, 0x21, 0x22, 0x12; grey: 0x11 */
    int orientation;              /* 1; 0 where an APP1 segment may have another */
    /* For limits: segments (up to the first scan where that is the only one, else to the end),
     * scans, and the components of all scans together. */
    int segments, scans, passes;
} Header;
const char *status_name(Status status);
Status jpeg_header(const uint8_t *bytes, size_t size, Header *header);

/* decode.c: the whole file to planes, at 1/denominator (1, 2, 4, 8). `bytes` are read up to `size`
 * and not beyond. `window`: NULL for all of it. Planes lie in `scratch` until the next call. */
Status jpeg_decode(Scratch *scratch, const uint8_t *bytes, size_t size, int denominator,
                   const Window *window, Planes *planes);

/* idct.h. `coefficients` and `quant` are in natural order (not zigzag), 32-byte aligned. Samples of
 * two neighbouring blocks of one component, 128 coefficients to 2n samples in n rows, n = 2, 4, 8,
 * as libjpeg-turbo's accurate integer IDCT makes them, for any coefficients: its vector code wraps
 * and saturates, and so does this. (Its plain C differs where |coefficient * quant| summed over a
 * block exceeds 2,100.) The coefficients are zeroed, while they are in the cache. */
typedef void Idct(int16_t *coefficients, const int16_t *quant, uint8_t *out, ptrdiff_t stride);
Idct idct_pair_2, idct_pair_4, idct_pair_8;
Idct idct_pair_2_avx2, idct_pair_4_avx2, idct_pair_8_avx2;

/* rows.c: an image as rows of R, G and B, separate or of interleaved pixels (or of grey: all three
 * pointers the same), valid until the next call; 64 bytes behind may be read. */
typedef struct Source {
    int width, height;
    int step;                     /* bytes from pixel to pixel; set to 1: they are taken apart */
    void (*row)(struct Source *source, int y, const uint8_t *rgb[3]);
    const void *image;            /* Planes, or Interleaved */
    uint8_t *memory;
    Window window;                /* columns outside need not be made */
} Source;
typedef struct {
    const uint8_t *pixels;
    ptrdiff_t stride;
    int channels;                 /* 1 or 3, grey or RGB; 2 or 4: with one that is left out */
    const uint8_t *palette;       /* 256 of RGB, of which pixels are numbers; NULL: none */
} Interleaved;
bool source_of_planes(Scratch *scratch, const Planes *planes, const Window *window, Source *source);
bool source_of_pixels(Scratch *scratch, const Interleaved *pixels, int width, int height,
                      const Window *window, Source *source);

/* png.c. A header's `sof` and `sampling` are 0, `segments` are all chunks; its orientation is 0
 * where a chunk may have EXIF. Pixels are those of the first `n_rows` at least, as Pillow has them,
 * until the next call. */
bool is_png(const uint8_t *bytes, size_t size);
Status png_header(const uint8_t *bytes, size_t size, Header *header);
Status png_decode(Scratch *scratch, const uint8_t *bytes, size_t size, int n_rows,
                  Interleaved *pixels);
/* inflate.c. Of a zlib stream that is whole, and has its Adler-32: how many bytes it became; -1: of
 * another one, or of one of more than `most`. 16 bytes behind the stream may be read, and
 * MOST_WRITTEN behind `most` written. */
enum { MOST_WRITTEN = 288 };
typedef ptrdiff_t Inflate(const uint8_t *bytes, size_t size, uint8_t *out, size_t most);
Inflate inflate, inflate_avx2;

/* resize.c. */
typedef struct {
    double across, down;          /* columns and rows that are resized: 468.25 of 469 */
    Window crop;                  /* of the source, whole pixels; cut out first */
    int resized_width, resized_height;
    Window window;                /* of the resized image; what is written */
    bool mirror, bicubic;
    struct Weights *weights[2];   /* across and down, where they are needed: `free` them */
} Placement;

/* What pixels become in a normalized row: one of 256 levels of each channel. */
typedef struct {
    int bytes;                    /* of a level: 4 or 2 */
    union { float of_4[3][256]; uint16_t of_2[3][256]; } levels;
    float mean[3], deviation[3];
    bool computes;                /* whether (pixel / 255 - mean) / deviation is every level */
    float inverse[3];             /* of the deviation */
} Normalization;
/* Sets `computes` and `inverse` by the others. */
void normalization_finish(Normalization *normalization);

/* Where the window of a result goes. */
typedef struct {
    uint8_t *memory;
    int channels;                 /* 3; or 1: of a grey source */
    ptrdiff_t stride;             /* bytes from one row of pixels to the next */
    ptrdiff_t plane;              /* bytes from channel to channel of a normalized row, else 0 */
    const Normalization *normalization; /* NULL: uint8 HWC */
} Row;
/* Whether a placement is possible in a source of that size; `needs`: what it depends on. */
bool placement_fits(const Placement *placement, int width, int height, Window *needs);
Status resize(Scratch *scratch, Source *source, Placement *placement, const Row *row);

/* resize.c: loops over the pixels of a row, of planes. */
struct Weights;
typedef void ResizeAcross(const struct Weights *weights, const uint8_t *const rgb[3], int step,
                          int channels, uint8_t *out, int plane);
/* n rows to one, of `width` bytes, a multiple of 32; one more row is there, of weight zero. */
typedef void ResizeDown(const uint8_t *const *rows, const int16_t *weights, int n, int precision,
                        int width, uint8_t *out);
typedef void Join(const uint8_t *const rgb[3], int n, uint8_t *out);
typedef void Normalize(const uint8_t *pixels, int n, const Normalization *values, int channel,
                       void *out);
typedef void Separate(const uint8_t *pixels, int step, uint8_t *r, uint8_t *g, uint8_t *b, int n);
Separate separate, separate_avx2;
ResizeAcross resize_across, resize_across_avx2;
ResizeDown resize_down, resize_down_avx2;
Join join, join_avx2;
Normalize normalize, normalize_avx2;

/* colour.c: rows of n pixels (or of n columns of chroma). Up to 32 samples more may be written. */
typedef void RgbOfYcc(const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                      uint8_t *r, uint8_t *g, uint8_t *b, int n);
/* The triangle filter: 3 near + far in each column; then between columns, and colours. */
typedef void ColumnSums(const uint8_t *near, const uint8_t *far, int16_t *sums, int n);
typedef void RgbOfSums(const uint8_t *y, const int16_t *cb, const int16_t *cr, int even, int odd,
                       uint8_t *r, uint8_t *g, uint8_t *b, int n);
RgbOfYcc rgb_of_ycc, rgb_of_ycc_avx2;
ColumnSums column_sums, column_sums_avx2;
RgbOfSums rgb_of_sums, rgb_of_sums_avx2;

/* kernels.c: the inner loops, chosen once by CPUID; WALLCLOCK_KERNELS=generic: the plain C. */
typedef struct {
    const char *name;
    bool bmi2;                    /* fast pdep, shifts by a variable number of bits */
    bool slow;                    /* plain C, not forced: see `slower_here` */
    Idct *idct_pair[9];           /* by n, which is 2, 4 or 8 */
    Inflate *inflate;
    RgbOfYcc *rgb_of_ycc;
    ColumnSums *column_sums;
    RgbOfSums *rgb_of_sums;
    Separate *separate;
    ResizeAcross *resize_across;
    ResizeDown *resize_down;
    Join *join;
    Normalize *normalize;
} Kernels;
extern const Kernels *kernels;
void kernels_choose(void);

#endif
