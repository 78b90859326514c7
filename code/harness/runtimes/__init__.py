"""Runtimes of the forward pass: ONNX Runtime, TensorRT, compiled PyTorch; and pruned networks.

Importing this package registers them (`wallclock.stages.forward.register`), and no library of
theirs.
"""

from wallclock.stages import forward

for _runtime in ("onnxruntime", "tensorrt"):
    forward.register(_runtime, f"{__name__}.ort")
forward.register("compile", f"{__name__}.compiled")
forward.register("pruned", f"{__name__}.pruning")
