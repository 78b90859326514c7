/* What a loader would cost that is nothing but C: the other side of benchmarks/ceiling.py.
 *
 *     ceiling LIBTURBOJPEG THREADS PASSES MARGIN [OUT] < one path a line
 *
 * Threads take the images in turn: read, decode at the smallest DCT scale whose shorter side is at
 * least MARGIN x 224, resize to 224 x 224 with Pillow's bilinear filter (widened with the scale, so
 * that it antialiases), into a row of a batch buffer. Nothing is checked but for damage.
 *
 * It prints images, CPU seconds (user and system, all threads) and wall seconds of PASSES passes,
 * behind one that is not timed. With OUT it writes the pixels, uint8 (n, 224, 224, 3), instead.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PX = 224, ROW = PX * 3, IMAGE = PX * ROW };
enum { STRIDE = ROW + 32 };      /* of rows that are narrow already; a pixel is stored as 4 bytes */
enum { BITS = 14, GROUP = 4 };   /* of a weight; taps that one load has */
enum { BATCH_ROWS = 128, MOST_THREADS = 64, SLACK = 4096 };

/* TurboJPEG's own API, the same since version 1.4 (turbojpeg.h). */
enum { TJPF_RGB = 0 };
static void *(*tjInitDecompress)(void);
static int (*tjDestroy)(void *);
static int (*tjDecompressHeader3)(void *, const unsigned char *, unsigned long, int *, int *, int *,
                                  int *);
static int (*tjDecompress2)(void *, const unsigned char *, unsigned long, unsigned char *, int, int,
                            int, int, int);

static char **paths;
static size_t n_images, n_rows;
static uint8_t *batches;
static double margin;
static atomic_size_t next_image;
static size_t end_image;

static void fail(const char *what, const char *which) {
    fprintf(stderr, "ceiling: %s: %s\n", what, which);
    exit(1);
}

static void *allocate(size_t size) {
    /* Loads reach past the last pixel, where the weights are zero. */
    void *memory = aligned_alloc(64, (size + SLACK + 63) / 64 * 64);
    if (memory == NULL) fail("no memory", "");
    return memory;
}

/* A buffer that grows. */
typedef struct {
    uint8_t *data;
    size_t size;
} Buffer;

static uint8_t *at_least(Buffer *buffer, size_t size) {
    if (buffer->size < size) {
        free(buffer->data);
        buffer->data = allocate(size);
        buffer->size = size;
    }
    return buffer->data;
}

/* The filter of one axis: for each output, its first input and the weights of `taps` of them. */
typedef struct {
    int taps;
    int first[PX];
    Buffer weights; /* int16 (PX, taps), zero behind the last input */
} Filter;

/* Pillow's precompute_coeffs (src/libImaging/Resample.c), of `extent` of `size` inputs. */
static void make_filter(Filter *filter, int size, double extent) {
    double scale = extent / PX, support = scale > 1 ? scale : 1;
    filter->taps = ((int)ceil(support) * 2 + 1 + GROUP - 1) / GROUP * GROUP;
    size_t bytes = (size_t)PX * filter->taps * sizeof(int16_t);
    int16_t *weights = (int16_t *)at_least(&filter->weights, bytes);
    memset(weights, 0, bytes);
    for (int out = 0; out < PX; out++, weights += filter->taps) {
        double center = (out + 0.5) * scale, sum = 0;
        int first = (int)fmax(center - support + 0.5, 0);
        int last = (int)fmin(center + support + 0.5, size);
        double exact[filter->taps];
        for (int at = first; at < last; at++) {
            double distance = fabs(at - center + 0.5) / support;
            sum += exact[at - first] = distance < 1 ? 1 - distance : 0;
        }
        for (int at = first; at < last; at++)
            weights[at - first] = (int16_t)lrint(exact[at - first] / sum * (1 << BITS));
        filter->first[out] = first;
    }
}

static __m256i pair_of_weights(const int16_t *weights) {
    int32_t pair;
    memcpy(&pair, weights, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* Two rows to PX pixels, one in each half of a register. */
static void resize_rows(const Filter *filter, const uint8_t *above, const uint8_t *below,
                        uint8_t *out_above, uint8_t *out_below) {
    const __m256i first_pair = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const __m256i second_pair = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    const int16_t *weights = (const int16_t *)filter->weights.data;
    for (int out = 0; out < PX; out++, weights += filter->taps) {
        __m256i sum = _mm256_set1_epi32(1 << (BITS - 1));
        size_t from = (size_t)filter->first[out] * 3;
        for (int tap = 0; tap < filter->taps; tap += GROUP, from += 3 * GROUP) {
            __m256i pixels = _mm256_loadu2_m128i((const __m128i *)(below + from),
                                                 (const __m128i *)(above + from));
            __m256i first = _mm256_shuffle_epi8(pixels, first_pair);
            __m256i second = _mm256_shuffle_epi8(pixels, second_pair);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(first, pair_of_weights(weights + tap)));
            sum = _mm256_add_epi32(
                sum, _mm256_madd_epi16(second, pair_of_weights(weights + tap + 2)));
        }
        sum = _mm256_srai_epi32(sum, BITS);
        sum = _mm256_packs_epi32(sum, sum);
        sum = _mm256_packus_epi16(sum, sum);
        int32_t pixel = _mm256_extract_epi32(sum, 0), pixel_below = _mm256_extract_epi32(sum, 4);
        memcpy(out_above + out * 3, &pixel, sizeof pixel);
        memcpy(out_below + out * 3, &pixel_below, sizeof pixel_below);
    }
}

/* One row of the result from `taps` rows of PX pixels. */
static void resize_column(const int16_t *weights, int taps, const uint8_t *rows, uint8_t *out) {
    const __m256i zero = _mm256_setzero_si256();
    for (int at = 0; at < ROW; at += 32) {
        __m256i sums[4];
        for (int part = 0; part < 4; part++) sums[part] = _mm256_set1_epi32(1 << (BITS - 1));
        for (int tap = 0; tap < taps; tap += 2) {
            __m256i pair = pair_of_weights(weights + tap);
            if (_mm256_testz_si256(pair, pair)) continue; /* it may lie behind the last row */
            const uint8_t *row = rows + (size_t)tap * STRIDE + at;
            __m256i a = _mm256_loadu_si256((const __m256i *)row);
            __m256i b = _mm256_loadu_si256((const __m256i *)(row + STRIDE));
            __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
            __m256i words[4] = {
                _mm256_unpacklo_epi8(low, zero), _mm256_unpackhi_epi8(low, zero),
                _mm256_unpacklo_epi8(high, zero), _mm256_unpackhi_epi8(high, zero)};
            for (int part = 0; part < 4; part++)
                sums[part] = _mm256_add_epi32(sums[part], _mm256_madd_epi16(words[part], pair));
        }
        for (int part = 0; part < 4; part++) sums[part] = _mm256_srai_epi32(sums[part], BITS);
        __m256i low = _mm256_packs_epi32(sums[0], sums[1]);
        __m256i high = _mm256_packs_epi32(sums[2], sums[3]);
        _mm256_storeu_si256((__m256i *)(out + at), _mm256_packus_epi16(low, high));
    }
}

/* What one thread uses again and again. */
typedef struct {
    void *decoder;
    Buffer file, pixels, narrow;
    Filter across, down;
} Tools;

static size_t read_file(Tools *tools, const char *path) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status)) fail("cannot open", path);
    size_t size = (size_t)status.st_size, got = 0;
    uint8_t *data = at_least(&tools->file, size);
    while (got < size) {
        ssize_t part = read(descriptor, data + got, size - got);
        if (part <= 0) fail("cannot read", path);
        got += (size_t)part;
    }
    close(descriptor);
    return size;
}

static int scale_of(int width, int height) {
    int shorter = width < height ? width : height;
    for (int scale = 8; scale > 1; scale /= 2)
        if ((shorter + scale - 1) / scale >= margin * PX) return scale;
    return 1;
}

static void load(Tools *tools, const char *path, uint8_t *out) {
    int width, height, subsampling, colours;
    size_t size = read_file(tools, path);
    const uint8_t *file = tools->file.data;
    if (tjDecompressHeader3(tools->decoder, file, size, &width, &height, &subsampling, &colours))
        fail("no JPEG", path);
    int scale = scale_of(width, height);
    int columns = (width + scale - 1) / scale, rows = (height + scale - 1) / scale;
    /* A row at an odd address is not written past the caches (jdcolext-avx2.asm: vmovntdq). */
    uint8_t *pixels = at_least(&tools->pixels, (size_t)columns * rows * 3 + 1) + 1;
    if (tjDecompress2(tools->decoder, file, size, pixels, columns, 0, rows, TJPF_RGB, 0))
        fail("damaged", path);
    make_filter(&tools->across, columns, (double)width / scale);
    make_filter(&tools->down, rows, (double)height / scale);
    uint8_t *narrow = at_least(&tools->narrow, (size_t)(rows + 2) * STRIDE);
    for (int row = 0; row < rows; row += 2) {
        int below = row + 1 < rows ? row + 1 : row;
        uint8_t *narrow_row = narrow + (size_t)row * STRIDE;
        resize_rows(&tools->across, pixels + (size_t)row * columns * 3,
                    pixels + (size_t)below * columns * 3, narrow_row, narrow_row + STRIDE);
    }
    const int16_t *weights = (const int16_t *)tools->down.weights.data;
    for (int row = 0; row < PX; row++, weights += tools->down.taps)
        resize_column(weights, tools->down.taps, narrow + (size_t)tools->down.first[row] * STRIDE,
                      out + (size_t)row * ROW);
}

static void *work(void *unused) {
    Tools tools = {.decoder = tjInitDecompress()};
    for (size_t at; (at = atomic_fetch_add(&next_image, 1)) < end_image;)
        load(&tools, paths[at % n_images], batches + at % n_rows * IMAGE);
    tjDestroy(tools.decoder);
    free(tools.file.data);
    free(tools.pixels.data);
    free(tools.narrow.data);
    free(tools.across.weights.data);
    free(tools.down.weights.data);
    return unused;
}

static void take_passes(int threads, size_t passes) {
    pthread_t crew[MOST_THREADS];
    next_image = 0;
    end_image = passes * n_images;
    for (int number = 0; number < threads; number++)
        if (pthread_create(&crew[number], NULL, work, NULL)) fail("no thread", "");
    for (int number = 0; number < threads; number++) pthread_join(crew[number], NULL);
}

static void bind(const char *name) {
    void *library = dlopen(name, RTLD_NOW);
    if (library == NULL) fail("cannot load", dlerror());
    *(void **)&tjInitDecompress = dlsym(library, "tjInitDecompress");
    *(void **)&tjDestroy = dlsym(library, "tjDestroy");
    *(void **)&tjDecompressHeader3 = dlsym(library, "tjDecompressHeader3");
    *(void **)&tjDecompress2 = dlsym(library, "tjDecompress2");
    if (!tjInitDecompress || !tjDestroy || !tjDecompressHeader3 || !tjDecompress2)
        fail("no TurboJPEG", name);
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static double wall_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void read_paths(void) {
    char *line = NULL;
    size_t size = 0;
    for (ssize_t length; (length = getline(&line, &size, stdin)) > 0; line = NULL, size = 0) {
        line[strcspn(line, "\n")] = '\0';
        paths = realloc(paths, (n_images + 1) * sizeof *paths);
        paths[n_images++] = line;
    }
    if (n_images == 0) fail("no path", "standard input is empty");
}

int main(int count, char **words) {
    if (count < 5) fail("usage", "ceiling LIBTURBOJPEG THREADS PASSES MARGIN [OUT] < paths");
    if (!__builtin_cpu_supports("avx2")) fail("the processor lacks", "AVX2");
    bind(words[1]);
    int threads = atoi(words[2]);
    if (threads < 1 || threads > MOST_THREADS) fail("not so many threads", words[2]);
    margin = atof(words[4]) > 1 ? atof(words[4]) : 1;
    read_paths();
    n_rows = count > 5 ? n_images : BATCH_ROWS;
    batches = allocate(n_rows * IMAGE);
    take_passes(threads, 1);
    if (count > 5) {
        FILE *out = fopen(words[5], "wb");
        if (!out || fwrite(batches, IMAGE, n_rows, out) != n_rows || fclose(out))
            fail("cannot write", words[5]);
        return 0;
    }
    double cpu = cpu_seconds(), wall = wall_seconds();
    take_passes(threads, (size_t)atol(words[3]));
    printf("%zu %.6f %.6f\n", end_image, cpu_seconds() - cpu, wall_seconds() - wall);
    return 0;
}
