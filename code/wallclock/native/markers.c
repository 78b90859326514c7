/* Segments of a JPEG file (T.81, annex B): frame and scan headers, tables, and what says which
 * colours the components are. */
#include <string.h>

#include "jpeg.h"

enum {
    TEM = 0x01, SOF0 = 0xC0, DHT = 0xC4, JPG = 0xC8, DAC = 0xCC, SOF15 = 0xCF,
    RST0 = 0xD0, SOI = 0xD8, EOI = 0xD9, SOS = 0xDA, DQT = 0xDB, DRI = 0xDD,
    APP0 = 0xE0, APP1 = 0xE1, APP14 = 0xEE, APP15 = 0xEF, COM = 0xFE,
    MOST_SEGMENTS = 1000, MOST_FILL_BYTES = 64,
};

/* Figure A.6: position in the zigzag -> row * 8 + column. */
const uint8_t natural_order[BLOCK] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

const char *status_name(Status status)
{
    static const char *const names[] = {
        [DECODED] = "decoded",           [NOT_READ] = "neither JPEG nor PNG",
        [OTHER_PROCESS] = "another kind of image", [IRREGULAR] = "irregular",
        [UNREFINED] = "unrefined",       [OUT_OF_RANGE] = "out of range",
        [SLOWER_HERE] = "slower here",   [NO_MEMORY] = "no memory",
    };
    return names[status];
}

static int word(const uint8_t *bytes)
{
    return bytes[0] << 8 | bytes[1];
}

static ptrdiff_t left(Bytes bytes)
{
    return bytes.end - bytes.at;
}

static bool begins(Bytes bytes, const char *name, size_t size)
{
    return (size_t)left(bytes) >= size && !memcmp(bytes.at, name, size);
}

/* Takes the next marker and its parameters, if it is one that has some. */
static bool next_segment(Bytes *rest, int *marker, Bytes *parameters)
{
    int fill = -1;
    for (; left(*rest) >= 2 && *rest->at == 0xFF; rest->at++)
        fill++;
    if (fill < 0 || fill > MOST_FILL_BYTES || *rest->at == 0xFF)
        return false;
    *marker = *rest->at++;
    *parameters = (Bytes){rest->at, rest->at};
    if (*marker <= TEM || (*marker >= RST0 && *marker <= EOI))
        return *marker != 0;
    if (left(*rest) < 2)
        return false;
    int length = word(rest->at);
    if (length < 2 || length > left(*rest))
        return false;
    *parameters = (Bytes){rest->at + 2, rest->at + length};
    rest->at += length;
    return true;
}

/* DQT (B.2.4.1) */
static Status read_quantization(Frame *frame, Bytes in)
{
    if (frame->in_scans)
        return IRREGULAR;
    while (left(in)) {
        int wide = *in.at >> 4, table = *in.at & 15;
        in.at++;
        if (wide > 1 || table >= N_TABLES || left(in) < BLOCK << wide)
            return IRREGULAR;
        for (int k = 0; k < BLOCK; k++, in.at += 1 + wide) {
            int q = wide ? word(in.at) : *in.at;
            if (q < 1 || q > INT16_MAX)
                return IRREGULAR;
            frame->quant[table][natural_order[k]] = (uint16_t)q;
        }
        frame->quant_known |= 1 << table;
    }
    return DECODED;
}

/* DHT (B.2.4.2); what the codes are is seen to when a scan uses the table. */
static Status read_huffman(Frame *frame, Bytes in)
{
    while (left(in)) {
        int is_ac = *in.at >> 4, table = *in.at & 15, symbols = 0;
        in.at++;
        if (is_ac > 1 || table >= N_TABLES || left(in) < 16)
            return IRREGULAR;
        for (int i = 0; i < 16; i++)
            symbols += in.at[i];
        if (symbols > 256 || left(in) < 16 + symbols)
            return IRREGULAR;
        frame->tables[is_ac][table] = (TableBytes){in.at, 16 + (size_t)symbols};
        in.at += 16 + symbols;
    }
    return DECODED;
}

/* SOFn (B.2.2). Width and height are set even of what is not decoded here. */
static Status read_frame(Frame *frame, int sof, Bytes in)
{
    if (frame->n_components || left(in) < 6)
        return IRREGULAR;
    frame->sof = (uint8_t)sof;
    frame->height = word(in.at + 1);
    frame->width = word(in.at + 3);
    frame->n_components = in.at[5];
    if (!frame->height || !frame->width || left(in) != 6 + 3 * frame->n_components)
        return IRREGULAR;
    if (sof > SOF2 || in.at[0] != 8 || (frame->n_components != 1 && frame->n_components != 3))
        return OTHER_PROCESS;
    in.at += 6;
    for (int i = 0; i < frame->n_components; i++, in.at += 3) {
        Component *c = &frame->components[i];
        *c = (Component){.id = in.at[0], .h = in.at[1] >> 4, .v = in.at[1] & 15, .tq = in.at[2]};
        if (c->h < 1 || c->h > 4 || c->v < 1 || c->v > 4 || c->tq >= N_TABLES)
            return IRREGULAR;
        for (int other = 0; other < i; other++)
            if (frame->components[other].id == c->id)
                return IRREGULAR;
        /* A scan of one component has no MCUs of several blocks, whatever its factors. */
        if (frame->n_components == 1)
            c->h = c->v = 1;
        if (i ? c->h != 1 || c->v != 1 : c->h > 2 || c->v > 2)
            return OTHER_PROCESS;
    }
    return DECODED;
}

/* APP0 and APP14 as libjpeg reads them; APP1 has EXIF or XMP. */
static Status read_application(Frame *frame, int marker, Bytes in)
{
    if (frame->in_scans)
        return DECODED;
    if (marker == APP0 && left(in) >= 14 && begins(in, "JFIF", 5)) {
        frame->jfif = true;
        return in.at[5] == 1 ? DECODED : IRREGULAR;
    }
    if (marker == APP14 && left(in) >= 12 && begins(in, "Adobe", 5)) {
        frame->adobe = true;
        frame->transform = in.at[11];
    }
    if (marker == APP1)
        frame->app1 = true;
    return DECODED;
}

static int blocks_of(int pixels, int factor, int most)
{
    return (pixels * factor + 8 * most - 1) / (8 * most);
}

/* Sizes in blocks (A.1.1, A.2.4), known with the first scan; a table that is defined anew behind
 * it belongs to no component. */
static Status begin_scans(Frame *frame)
{
    frame->in_scans = true;
    frame->h_max = frame->components[0].h;
    frame->v_max = frame->components[0].v;
    frame->mcus_wide = blocks_of(frame->width, 1, frame->h_max);
    frame->mcus_high = blocks_of(frame->height, 1, frame->v_max);
    for (int i = 0; i < frame->n_components; i++) {
        Component *c = &frame->components[i];
        if (!(frame->quant_known >> c->tq & 1))
            return IRREGULAR;
        for (int k = 0; k < BLOCK; k++)
            c->quant[k] = (int16_t)frame->quant[c->tq][k];
        c->wide = blocks_of(frame->width, c->h, frame->h_max);
        c->high = blocks_of(frame->height, c->v, frame->v_max);
        c->padded_wide = frame->mcus_wide * c->h;
        c->stored_wide = frame->sof == SOF2 ? (c->padded_wide + 1) & ~1 : 2 * c->h;
        c->padded_high = frame->mcus_high * c->v;
        memset(c->low, -1, sizeof c->low);
    }
    return DECODED;
}

/* SOS (B.2.3) */
static Status read_scan(Frame *frame, Scan *scan, Bytes in)
{
    if (!frame->n_components || left(in) < 1)
        return IRREGULAR;
    Status status = frame->in_scans ? DECODED : begin_scans(frame);
    if (status)
        return status;
    *scan = (Scan){.frame = frame, .n = *in.at++};
    if (scan->n < 1 || scan->n > frame->n_components || left(in) != 2 * scan->n + 3)
        return IRREGULAR;
    int next = 0; /* components of a scan are in the frame's order */
    for (int i = 0; i < scan->n; i++, in.at += 2, next++) {
        while (next < frame->n_components && frame->components[next].id != in.at[0])
            next++;
        scan->td[i] = in.at[1] >> 4;
        scan->ta[i] = in.at[1] & 15;
        if (next == frame->n_components || scan->td[i] >= N_TABLES || scan->ta[i] >= N_TABLES)
            return IRREGULAR;
        scan->components[i] = &frame->components[next];
    }
    scan->first = in.at[0];
    scan->last = in.at[1];
    scan->high = in.at[2] >> 4;
    scan->low = in.at[2] & 15;
    scan->wide = scan->n > 1 ? frame->mcus_wide : scan->components[0]->wide;
    scan->rows = scan->n > 1 ? frame->mcus_high : scan->components[0]->high;
    return DECODED;
}

static Status read_segment(Frame *frame, Scan *scan, int marker, Bytes in)
{
    switch (marker) {
    case SOS:
        return read_scan(frame, scan, in);
    case DQT:
        return read_quantization(frame, in);
    case DHT:
        return read_huffman(frame, in);
    case DRI:
        if (left(in) != 2)
            return IRREGULAR;
        frame->restart_interval = word(in.at);
        return DECODED;
    case DAC:
        return OTHER_PROCESS;
    case COM: case EOI:
        return DECODED;
    }
    if (marker >= APP0 && marker <= APP15)
        return read_application(frame, marker, in);
    return marker >= SOF0 && marker <= SOF15 && marker != JPG ? read_frame(frame, marker, in)
                                                              : IRREGULAR;
}

Status next_scan(Frame *frame, Scan *scan)
{
    scan->n = 0;
    for (;;) {
        int marker;
        Bytes parameters;
        if (!next_segment(&frame->rest, &marker, &parameters) || ++frame->segments > MOST_SEGMENTS)
            return NOT_READ;
        Status status = read_segment(frame, scan, marker, parameters);
        if (status || marker == SOS)
            return status;
        if (marker == EOI)
            return frame->in_scans ? DECODED : NOT_READ;
    }
}

Status first_scan(Frame *frame, const uint8_t *bytes, size_t size, Scan *scan)
{
    memset(frame, 0, sizeof *frame);
    frame->rest = (Bytes){bytes, bytes + size};
    if (!begins(frame->rest, "\xFF\xD8\xFF", 3))
        return NOT_READ;
    frame->rest.at += 2;
    return next_scan(frame, scan);
}

/* As libjpeg decides: JFIF before Adobe before the components' names. */
Status frame_colours(const Frame *frame, Colours *colours)
{
    const Component *c = frame->components;
    *colours = YCBCR;
    if (frame->n_components == 1)
        *colours = GREY;
    else if (!frame->jfif && frame->adobe && frame->transform > 1)
        return IRREGULAR;
    else if (!frame->jfif && frame->adobe && frame->transform == 0)
        *colours = RGB;
    else if (!frame->jfif && !frame->adobe && c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B')
        *colours = RGB;
    return *colours == RGB && (c[0].h > 1 || c[0].v > 1) ? OTHER_PROCESS : DECODED;
}

Status jpeg_header(const uint8_t *bytes, size_t size, Header *header)
{
    Frame frame;
    Scan scan;
    memset(header, 0, sizeof *header);
    Status status = first_scan(&frame, bytes, size, &scan);
    header->width = frame.width;
    header->height = frame.height;
    header->components = frame.n_components;
    header->sof = frame.sof;
    header->sampling = (uint8_t)(frame.components[0].h << 4 | frame.components[0].v);
    header->orientation = !frame.app1;
    while (!status && scan.n) {
        header->scans++;
        header->passes += scan.n;
        if (scan.n == frame.n_components && frame.sof != SOF2)
            break;
        status = decode_scan(NULL, &frame, &scan, NULL);
        if (!status)
            status = next_scan(&frame, &scan);
    }
    header->segments = frame.segments;
    return status;
}
