/* What Python sees of the native module; `_native.pyi` says what each function takes and gives. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "native.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static PyTypeObject *chunk_type;
static pthread_key_t scratch_key;

static void free_at_thread_exit(void *scratch)
{
    scratch_free(scratch);
}

/* The calling thread's memory; NULL: there is none. */
static Scratch *scratch_of_thread(void)
{
    Scratch *scratch = pthread_getspecific(scratch_key);
    if (!scratch && (scratch = scratch_new()) && pthread_setspecific(scratch_key, scratch)) {
        scratch_free(scratch);
        return NULL;
    }
    return scratch;
}

/* Of time.perf_counter_ns. */
static long long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (long long)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* An object that Python only keeps and hands back, with a copy of a struct. */
static PyObject *new_token(const void *values, size_t size, const char *name,
                           PyCapsule_Destructor free_token)
{
    void *copy = malloc(size);
    if (!copy)
        return PyErr_NoMemory();
    PyObject *token = PyCapsule_New(memcpy(copy, values, size), name, free_token);
    if (!token)
        free(copy);
    return token;
}

/* --- Plan: from an image of one size to a row --------------------------------------------- */

static const char PLAN[] = "Plan";
typedef struct {
    int full_width, full_height;  /* of the image in its file */
    int denominator;
    int width, height;            /* of the decoded image */
    Placement placement;
    Window needs;
} Plan;

static void free_plan(PyObject *token)
{
    Plan *plan = PyCapsule_GetPointer(token, PLAN);
    free(plan->placement.weights[0]);
    free(plan->placement.weights[1]);
    free(plan);
}

static bool parse_window(PyObject *object, Window *window)
{
    return object == Py_None || PyArg_ParseTuple(object, "iiii", &window->top, &window->left,
                                                 &window->height, &window->width);
}

static bool parse_plan(Plan *plan, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"size",   "resized", "denominator", "crop", "extent",
                            "window", "mirror",  "bicubic",     NULL};
    Placement *placement = &plan->placement;
    PyObject *crop = Py_None, *extent = Py_None, *window = Py_None;
    int n = 1, mirror = 0, bicubic = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "(ii)(ii)|$iOOOpp", names, &plan->full_height,
                                     &plan->full_width, &placement->resized_height,
                                     &placement->resized_width, &n, &crop, &extent, &window,
                                     &mirror, &bicubic))
        return false;
    bool is_scale = n == 1 || n == 2 || n == 4 || n == 8; /* else no pixels, which do not fit */
    plan->denominator = n;
    plan->width = is_scale && plan->full_width > 0 ? (plan->full_width - 1) / n + 1 : 0;
    plan->height = is_scale && plan->full_height > 0 ? (plan->full_height - 1) / n + 1 : 0;
    placement->crop = (Window){0, 0, plan->width, plan->height};
    placement->window = (Window){0, 0, placement->resized_width, placement->resized_height};
    if (!parse_window(crop, &placement->crop) || !parse_window(window, &placement->window))
        return false;
    placement->down = placement->crop.height;
    placement->across = placement->crop.width;
    placement->mirror = mirror;
    placement->bicubic = bicubic;
    return extent == Py_None ||
           PyArg_ParseTuple(extent, "dd", &placement->down, &placement->across);
}

static PyObject *new_plan(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    Plan plan = {0};
    if (!parse_plan(&plan, args, kwargs))
        return NULL;
    if (!placement_fits(&plan.placement, plan.width, plan.height, &plan.needs))
        return PyErr_Format(PyExc_ValueError, "no such part or size of an image of %d x %d px",
                            plan.full_width, plan.full_height);
    return new_token(&plan, sizeof plan, PLAN, free_plan);
}

/* --- rows ---------------------------------------------------------------------------------- */

static const char NORMALIZATION[] = "Normalization";

static void free_normalization(PyObject *token)
{
    free(PyCapsule_GetPointer(token, NORMALIZATION));
}

static PyObject *new_normalization(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object;
    Py_buffer levels;
    Normalization values;
    float *mean = values.mean, *deviation = values.deviation;
    if (!PyArg_ParseTuple(args, "O(fff)(fff)", &object, &mean[0], &mean[1], &mean[2],
                          &deviation[0], &deviation[1], &deviation[2]) ||
        PyObject_GetBuffer(object, &levels, PyBUF_C_CONTIGUOUS) < 0)
        return NULL;
    values.bytes = (int)levels.itemsize;
    bool fits = levels.len == 3 * 256 * levels.itemsize && (values.bytes == 4 || values.bytes == 2);
    if (fits)
        memcpy(&values.levels, levels.buf, (size_t)levels.len);
    PyBuffer_Release(&levels);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "levels are (3, 256) of 4 or 2 bytes");
    normalization_finish(&values);
    return new_token(&values, sizeof values, NORMALIZATION, free_normalization);
}

/* NULL for None, and with an error. */
static const Normalization *normalization_of(PyObject *token)
{
    return token == Py_None ? NULL : PyCapsule_GetPointer(token, NORMALIZATION);
}

/* The row that a buffer is, uint8 (h, w, c) or normalized (3, h, w); where this is true, `view` is
 * the caller's to release. */
static bool open_row(PyObject *object, const Window *window, const Normalization *normalization,
                     Py_buffer *view, Row *row)
{
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE | PyBUF_STRIDES | PyBUF_FORMAT) < 0)
        return false;
    const Py_ssize_t *shape = view->shape, *strides = view->strides;
    int chw = normalization != NULL, channels = view->ndim == 3 ? (int)shape[chw ? 0 : 2] : 0;
    size_t size = (size_t)(chw ? normalization->bytes : 1);
    const char *formats = chw ? (normalization->bytes == 4 ? "f" : "eH") : "B";
    const char *format = view->format ? view->format : "B";
    if ((channels == 3 || (channels == 1 && !chw)) && shape[chw] == window->height &&
        shape[chw + 1] == window->width && strides[2] == view->itemsize &&
        (chw || strides[1] == channels) && format[0] && strchr(formats, format[0]) && !format[1] &&
        ((uintptr_t)view->buf | (size_t)strides[0] | (size_t)strides[1]) % size == 0) {
        *row = (Row){view->buf, channels, strides[chw], chw ? strides[0] : 0, normalization};
        return true;
    }
    PyBuffer_Release(view);
    PyErr_Format(PyExc_ValueError, "the row is not one of %d x %d px", window->width,
                 window->height);
    return false;
}

/* --- Chunk: files on their way into rows --------------------------------------------------- */

typedef struct {
    PyObject *path;               /* NULL: the bytes were given, and `view` is open */
    Py_buffer view;
    uint8_t *bytes;
    size_t size;
    int error;                    /* errno of a file that could not be read */
    Status status;
    Header header;
    long long read_ns;            /* that reading and parsing took */
} Item;

typedef struct {
    PyObject_HEAD
    Py_ssize_t n;
    Item *items;
} Chunk;

static void free_chunk(PyObject *self)
{
    Chunk *chunk = (Chunk *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (Py_ssize_t i = 0; i < chunk->n; i++) {
        Item *item = &chunk->items[i];
        if (item->path)
            free(item->bytes);
        else
            PyBuffer_Release(&item->view);
        Py_XDECREF(item->path);
    }
    PyMem_Free(chunk->items);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* All bytes of an open file; 0 or an errno. It may have become shorter since its size was asked. */
static int read_bytes(int file, size_t max_bytes, Item *item)
{
    struct stat about;
    if (fstat(file, &about))
        return errno;
    if (!S_ISREG(about.st_mode))
        return EINVAL;
    size_t most = (size_t)about.st_size;
    if (most > max_bytes)
        return EFBIG;
    item->bytes = malloc(most + 1);
    if (!item->bytes)
        return ENOMEM;
    while (item->size <= most) {
        ssize_t n = read(file, item->bytes + item->size, most + 1 - item->size);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return errno;
        item->size += n < 0 ? 0 : (size_t)n;
    }
    return EBUSY;                 /* it has grown */
}

static void read_item(Item *item, size_t max_bytes)
{
    long long began = now_ns();
    if (item->path) {
        /* Without waiting for who writes into a pipe. */
        int file = open(PyBytes_AsString(item->path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        item->error = file < 0 ? errno : read_bytes(file, max_bytes, item);
        if (file >= 0)
            close(file);
    }
    if (!item->error)
        item->status = (is_png(item->bytes, item->size) ? png_header : jpeg_header)(
            item->bytes, item->size, &item->header);
    item->read_ns = now_ns() - began;
}

static bool take_item(PyObject *object, Item *item)
{
    if (PyUnicode_Check(object))
        return PyUnicode_FSConverter(object, &item->path);
    if (PyObject_GetBuffer(object, &item->view, PyBUF_SIMPLE) < 0)
        return false;
    item->bytes = item->view.buf;
    item->size = (size_t)item->view.len;
    return true;
}

static PyObject *open_chunk(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *objects;
    Py_ssize_t max_bytes;
    if (!PyArg_ParseTuple(args, "O!n:open", &PyList_Type, &objects, &max_bytes))
        return NULL;
    Chunk *chunk = PyObject_New(Chunk, chunk_type);
    if (!chunk)
        return NULL;
    Py_ssize_t n = PyList_Size(objects);
    chunk->n = 0;
    chunk->items = PyMem_Calloc((size_t)n + 1, sizeof(Item));
    bool taken = chunk->items || PyErr_NoMemory();
    while (taken && chunk->n < n) {
        taken = take_item(PyList_GetItem(objects, chunk->n), &chunk->items[chunk->n]);
        chunk->n += taken;
    }
    if (!taken) {
        Py_DECREF(chunk);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < n; i++)
        read_item(&chunk->items[i], max_bytes < 0 ? 0 : (size_t)max_bytes);
    Py_END_ALLOW_THREADS
    return (PyObject *)chunk;
}

static PyObject *chunk_headers(PyObject *self, void *unused)
{
    (void)unused;
    Chunk *chunk = (Chunk *)self;
    PyObject *headers = PyList_New(chunk->n);
    for (Py_ssize_t i = 0; headers && i < chunk->n; i++) {
        const Item *item = &chunk->items[i];
        const Header *is = &item->header;
        PyObject *header = Py_BuildValue(
            "inLiiiiiiiii", item->error ? -item->error : (int)item->status, (Py_ssize_t)item->size,
            item->read_ns, is->width, is->height, is->sof, is->components, is->sampling,
            is->orientation, is->segments, is->scans, is->passes);
        if (!header || PyList_SetItem(headers, i, header) < 0)
            Py_CLEAR(headers);
    }
    return headers;
}

static PyObject *chunk_bytes(PyObject *self, PyObject *index)
{
    Chunk *chunk = (Chunk *)self;
    Py_ssize_t i = PyNumber_AsSsize_t(index, PyExc_IndexError);
    if (i < 0 || i >= chunk->n)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "no file %zd", i);
    const Item *item = &chunk->items[i];
    errno = item->error;
    if (item->error)
        return PyErr_SetFromErrno(PyExc_OSError);
    if (!item->path && PyBytes_CheckExact(item->view.obj))
        return Py_NewRef(item->view.obj);
    return PyBytes_FromStringAndSize((const char *)item->bytes, (Py_ssize_t)item->size);
}

/* One file on its way; without a plan it is left out. */
typedef struct {
    Plan *plan;
    PyObject *token;              /* which keeps the plan */
    Py_buffer view;
    Row row;
    Status status;
    long long began_ns, decoded_ns, done_ns;
} Job;

static bool prepare(const Item *item, PyObject *token, PyObject *row,
                    const Normalization *normalization, Job *job)
{
    if (token == Py_None || row == Py_None)
        return true;
    Plan *plan = PyCapsule_GetPointer(token, PLAN);
    if (!plan)
        return false;
    if (item->error || item->status || item->header.width != plan->full_width ||
        item->header.height != plan->full_height) {
        PyErr_SetString(PyExc_ValueError, "the plan is for an image of another size");
        return false;
    }
    if (!open_row(row, &plan->placement.window, normalization, &job->view, &job->row))
        return false;
    job->plan = plan;
    job->token = Py_NewRef(token);
    return true;
}

static Status run_png(Scratch *scratch, const Item *item, Job *job)
{
    Plan *plan = job->plan;
    int n_rows = plan->needs.top + plan->needs.height;
    Interleaved pixels;
    Source source;
    if (plan->denominator != 1 || (job->row.channels == 1 && item->header.components > 2))
        return OTHER_PROCESS;
    Status status = png_decode(scratch, item->bytes, item->size, n_rows, &pixels);
    job->decoded_ns = now_ns();
    if (status)
        return status;
    if (job->row.channels == 1 && pixels.palette)
        return OTHER_PROCESS;
    if (!source_of_pixels(scratch, &pixels, plan->width, plan->height, &plan->needs, &source))
        return NO_MEMORY;
    return resize(scratch, &source, &plan->placement, &job->row);
}

static Status run_jpeg(Scratch *scratch, const Item *item, Job *job)
{
    Plan *plan = job->plan;
    Planes planes;
    Source source;
    Status status = jpeg_decode(scratch, item->bytes, item->size, plan->denominator, &plan->needs,
                                &planes);
    job->decoded_ns = now_ns();
    if (status)
        return status;
    if (planes.width != plan->width || planes.height != plan->height)
        return IRREGULAR;
    if (job->row.channels == 1) {
        if (planes.colours == RGB)
            return OTHER_PROCESS; /* none of its planes is luma */
        planes.n_planes = 1;
        planes.colours = GREY;
    }
    if (!source_of_planes(scratch, &planes, &plan->needs, &source))
        return NO_MEMORY;
    return resize(scratch, &source, &plan->placement, &job->row);
}

static void run_all(const Chunk *chunk, Job *jobs)
{
    Scratch *scratch = scratch_of_thread();
    for (Py_ssize_t i = 0; i < chunk->n; i++) {
        if (!jobs[i].plan)
            continue;
        jobs[i].began_ns = jobs[i].decoded_ns = now_ns();
        const Item *item = &chunk->items[i];
        jobs[i].status = !scratch                          ? NO_MEMORY
                         : is_png(item->bytes, item->size) ? run_png(scratch, item, &jobs[i])
                                                           : run_jpeg(scratch, item, &jobs[i]);
        jobs[i].done_ns = now_ns();
    }
    if (scratch)
        scratch_trim(scratch);
}

static PyObject *results(const Job *jobs, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        const Job *job = &jobs[i];
        PyObject *result = job->plan ? Py_BuildValue("iLL", (int)job->status,
                                                     job->decoded_ns - job->began_ns,
                                                     job->done_ns - job->decoded_ns)
                                     : Py_NewRef(Py_None);
        if (!result || PyList_SetItem(list, i, result) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *chunk_fill(PyObject *self, PyObject *args)
{
    Chunk *chunk = (Chunk *)self;
    PyObject *plans, *rows, *object = Py_None;
    if (!PyArg_ParseTuple(args, "O!O!|O:fill", &PyList_Type, &plans, &PyList_Type, &rows, &object))
        return NULL;
    const Normalization *normalization = normalization_of(object);
    if (PyErr_Occurred())
        return NULL;
    if (PyList_Size(plans) != chunk->n || PyList_Size(rows) != chunk->n)
        return PyErr_Format(PyExc_ValueError, "fill takes %zd plans and rows", chunk->n);
    Job *jobs = PyMem_Calloc((size_t)chunk->n + 1, sizeof(Job));
    if (!jobs)
        return PyErr_NoMemory();
    bool prepared = true;
    for (Py_ssize_t i = 0; prepared && i < chunk->n; i++)
        prepared = prepare(&chunk->items[i], PyList_GetItem(plans, i), PyList_GetItem(rows, i),
                           normalization, &jobs[i]);
    if (prepared) {
        Py_BEGIN_ALLOW_THREADS
        run_all(chunk, jobs);
        Py_END_ALLOW_THREADS
    }
    PyObject *filled = prepared ? results(jobs, chunk->n) : NULL;
    for (Py_ssize_t i = 0; i < chunk->n; i++)
        if (jobs[i].plan) {
            PyBuffer_Release(&jobs[i].view);
            Py_DECREF(jobs[i].token);
        }
    PyMem_Free(jobs);
    return filled;
}

static PyMethodDef chunk_methods[] = {{"bytes", chunk_bytes, METH_O, NULL},
                                      {"fill", chunk_fill, METH_VARARGS, NULL},
                                      {NULL, NULL, 0, NULL}};
static PyGetSetDef chunk_attributes[] = {{"headers", chunk_headers, NULL, NULL, NULL},
                                         {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot chunk_slots[] = {{Py_tp_dealloc, free_chunk},
                                    {Py_tp_methods, chunk_methods},
                                    {Py_tp_getset, chunk_attributes},
                                    {0, NULL}};
static PyType_Spec chunk_spec = {"wallclock.native._native.Chunk", sizeof(Chunk), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 chunk_slots};

/* --- pixels of any decoder ----------------------------------------------------------------- */

/* Bytes from one pixel to the next: 1 of grey, perhaps seen as three channels; 3; or 4, with alpha or
 * padding. 0: this is no such image. */
static int pixel_size(const Py_buffer *pixels)
{
    if (pixels->ndim != 3)
        return 0;
    Py_ssize_t channels = pixels->shape[2], size = pixels->strides[1], next = pixels->strides[2];
    bool fits = next == 1 ? channels == size || (channels == 3 && size == 4)
                          : next == 0 && channels == 3 && size == 1;
    return fits && (size == 1 || size == 3 || size == 4) ? (int)size : 0;
}

static Status run_pixels(Plan *plan, const Py_buffer *pixels, const Row *row)
{
    Scratch *scratch = scratch_of_thread();
    Interleaved image = {pixels->buf, pixels->strides[0], pixel_size(pixels), NULL};
    Source source;
    if (!scratch || !source_of_pixels(scratch, &image, plan->width, plan->height, &plan->needs,
                                      &source))
        return NO_MEMORY;
    Status status = resize(scratch, &source, &plan->placement, row);
    scratch_trim(scratch);
    return status;
}

static PyObject *resize_pixels(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object, *plan_object, *row_object, *normalization_object = Py_None;
    Py_buffer pixels, view;
    Row row;
    if (!PyArg_ParseTuple(args, "OOO|O:resize", &object, &plan_object, &row_object,
                          &normalization_object))
        return NULL;
    Plan *plan = PyCapsule_GetPointer(plan_object, PLAN);
    const Normalization *normalization = normalization_of(normalization_object);
    if (PyErr_Occurred() || PyObject_GetBuffer(object, &pixels, PyBUF_STRIDES | PyBUF_FORMAT) < 0)
        return NULL;
    int status = -1;
    if (!pixel_size(&pixels) || pixels.shape[0] != plan->height || pixels.shape[1] != plan->width) {
        PyErr_Format(PyExc_ValueError, "the plan is for pixels (%d, %d, 1, 3 or 4) of uint8",
                     plan->height, plan->width);
    } else if (open_row(row_object, &plan->placement.window, normalization, &view, &row)) {
        Py_BEGIN_ALLOW_THREADS
        status = row.channels == 1 && pixel_size(&pixels) != 1 ? OTHER_PROCESS
                                                               : run_pixels(plan, &pixels, &row);
        Py_END_ALLOW_THREADS
        PyBuffer_Release(&view);
    }
    PyBuffer_Release(&pixels);
    return status < 0 ? NULL : PyLong_FromLong(status);
}

/* --- the module ---------------------------------------------------------------------------- */

static PyObject *choose_kernels(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    kernels_choose();
    return PyUnicode_FromString(kernels->name);
}

static bool add_statuses(PyObject *module)
{
    PyObject *names = PyTuple_New(NO_MEMORY + 1);
    for (int status = DECODED; names && status <= NO_MEMORY; status++) {
        PyObject *name = PyUnicode_FromString(status_name((Status)status));
        if (!name || PyTuple_SetItem(names, status, name) < 0)
            Py_CLEAR(names);
    }
    bool added = names && PyModule_AddObjectRef(module, "STATUSES", names) == 0;
    Py_XDECREF(names);
    return added;
}

static PyMethodDef functions[] = {{"Plan", (PyCFunction)(void (*)(void))new_plan,
                                   METH_VARARGS | METH_KEYWORDS, NULL},
                                  {"Normalization", new_normalization, METH_VARARGS, NULL},
                                  {"open", open_chunk, METH_VARARGS, NULL},
                                  {"resize", resize_pixels, METH_VARARGS, NULL},
                                  {"choose_kernels", choose_kernels, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};
static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_native", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void)
{
    if (pthread_key_create(&scratch_key, free_at_thread_exit))
        return PyErr_NoMemory();
    kernels_choose();
    PyObject *module = PyModule_Create(&definition);
    if (module && (!(chunk_type = (PyTypeObject *)PyType_FromSpec(&chunk_spec)) ||
                   PyModule_AddType(module, chunk_type) < 0 || !add_statuses(module)))
        Py_CLEAR(module);
    return module;
}
