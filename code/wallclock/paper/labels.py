"""What the short names in the tables are called in figures, captions and prose."""

from __future__ import annotations

DECODERS = {
    "pil": "PIL",
    "opencv": "OpenCV",
    "turbojpeg": "libjpeg-turbo",
    "simplejpeg": "simplejpeg",
}
SETS = {"small_256": "images of 256 px", "original": "originals at full resolution"}
CORPORA = {
    "abo": "Amazon Berkeley Objects",
    "synthetic": "synthetic images",
    "folder": "images of a folder",
}
RUNTIMES = {
    "pytorch": "PyTorch",
    "pytorch-compile": "torch.compile",
    "pytorch-cudagraph": "PyTorch, CUDA graph,",
    "onnxruntime": "ONNX Runtime, CUDA,",
    "onnxruntime-tensorrt": "ONNX Runtime, TensorRT,",
    "onnxruntime-cpu": "ONNX Runtime, CPU,",
}
STEPS = {
    "baseline": "Baseline",
    "decode_resize": "+ decode, resize",
    "workers": "+ workers",
    "batch": "+ batch",
    "fp16": "+ FP16",
}
SYSTEMS = {
    "ours": "wallclock (threads)",
    "paper": "the paper's recipe",
    "baseline": "the paper's baseline",
    "pil": "DataLoader + PIL",
    "pil-draft": "DataLoader + PIL draft",
    "imagecodecs": "DataLoader + imagecodecs",
    "kornia-rs": "DataLoader + kornia-rs",
    "pyvips": "DataLoader + pyvips",
    "torchvision": "DataLoader + torchvision",
    "dali": "DALI (CPU)",
    "dali-gpu": "DALI (GPU)",
    "spdl": "SPDL",
}
