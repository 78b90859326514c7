"""Written by `python -m benchmarks.fit` from benchmarks/decode.csv."""

#: Time of the native module over libjpeg-turbo's, by the scale's denominator.
NATIVE = {
    "JPEG": {1: 0.89, 2: 0.79, 4: 0.72, 8: 0.54},
    "progressive JPEG": {1: 0.47, 2: 0.35, 4: 0.32, 8: 0.056},
}
#: Nanoseconds of a pixel that a bilinear resize reads, and of one that it makes.
RESIZE_NS = {"pillow": (2.7, 5.9), "turbo": (0.41, 1.1), "native": (0.22, 0.61)}
