"""Programs around what others wrote, which `benchmarks.trace` traces. Weights are random.

Each takes a folder of images. They run in an environment of their own, and import nothing of here.
"""
