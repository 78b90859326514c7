"""Where each number stands in the counters of one process: words of eight bytes in a shared file.

A head, a text, then a region per thread. Only its thread writes a region, without a lock. A file
is sparse: what no thread uses takes no space.
"""

#: Ends of the names of files.
COUNTERS = ".counters"
SAMPLES = ".samples"
#: Environment variables: the folder for the files; set to record paths, too.
FOLDER_VARIABLE = "WALLCLOCK_TRACE"
PATHS_VARIABLE = "WALLCLOCK_TRACE_PATHS"
#: Paths that a process records at most.
N_PATHS = 128

WORD = 8

# --- words of the head: times in nanoseconds of the monotonic clock -----------------------------
#: ENDED: 0 while the process runs, and where it was killed. CPU_NS: of the process, as of its end
#: or of its last samples. FIRST_IMAGE: start of the first call that read or decoded one, or 0.
MAGIC_WORD, PID, IS_WORKER, STARTED, ENDED, CPU_NS, FIRST_IMAGE, DEVICE_BUSY_NS = range(8)
#: TRIED: time, and CPU time, in which the model was tried once the program had ended.
TEXT_USED, REGIONS_USED, TRIED_NS, TRIED_CPU_NS = range(8, 12)
HEAD_WORDS = 64
MAGIC = 0x57434B54

# --- text: lines of tab-separated fields --------------------------------------------------------
TEXT_BYTES = 1 << 18
#: First field of a line. function: its slot, stage, name. format: its number, name. use: name of
#: what was used, then name and value of each setting. device: name. path: of an image.
FUNCTION, FORMAT, USE, DEVICE, PATH = "function", "format", "use", "device", "path"

# --- words of a region --------------------------------------------------------------------------
#: OPEN, SINCE: slot of the innermost open function, and since when its time is not yet in its slot.
OPEN, SINCE, BEGAN, HAS_ENDED, KINDS_USED = range(5)
SLOTS = 8
#: A slot is four words: own nanoseconds, calls, images, and the least nanoseconds of an image in a
#: call, 0 where it is not kept. The first slot is of the program's own code.
SLOT_WORDS = 4
LEAST = 3
N_FUNCTIONS = 512
OUTSIDE = SLOTS
#: A row of image sizes: slot, format, stored width and height, made width and height, count, bytes.
KINDS = SLOTS + SLOT_WORDS * N_FUNCTIONS
KIND_WORDS = 8
N_KINDS = 512
REGION_WORDS = KINDS + KIND_WORDS * N_KINDS

#: Threads of a process at a time; what more of them spend is not counted.
N_REGIONS = 256

HEAD_BYTES = HEAD_WORDS * WORD + TEXT_BYTES
REGION_BYTES = REGION_WORDS * WORD
FILE_BYTES = HEAD_BYTES + N_REGIONS * REGION_BYTES


def region_at(index: int) -> int:
    """First word of a region in the file."""
    return HEAD_BYTES // WORD + index * REGION_WORDS
