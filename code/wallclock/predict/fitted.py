"""Written by `python -m benchmarks.fit` from benchmarks/decode.csv."""

#: Time of the native module over libjpeg-turbo's, by the scale's denominator.
NATIVE = {
    "JPEG": {1: 0.83, 2: 0.72, 4: 0.67, 8: 0.53},
    "progressive JPEG": {1: 0.48, 2: 0.34, 4: 0.32, 8: 0.054},
}
#: Nanoseconds of a pixel that a bilinear resize reads, and of one that it makes.
RESIZE_NS = {"pillow": (2.7, 5.2), "turbo": (0.42, 1.1), "native": (0.21, 0.64)}
