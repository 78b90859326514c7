"""What the short names in the tables are called in figures, captions and prose."""

from __future__ import annotations


class Labels(dict[str, str]):
    """Label by name; a name without a label is its own."""

    def __missing__(self, name: str) -> str:
        return name


DECODERS = Labels(pil="PIL", opencv="OpenCV", turbojpeg="libjpeg-turbo", simplejpeg="simplejpeg")
#: An image set in a sentence, and where space is short.
SETS = Labels(small_256="images of 256 px", original="originals at full resolution")
SHORT_SETS = Labels(small_256="256 px images", original="originals")
CORPORA = Labels(
    abo="Amazon Berkeley Objects", synthetic="synthetic images", folder="images of a folder"
)
RUNTIMES = Labels(
    {
        "pytorch": "PyTorch",
        "pytorch-compile": "torch.compile",
        "pytorch-cudagraph": "PyTorch, CUDA graph,",
        "onnxruntime": "ONNX Runtime, CUDA,",
        "onnxruntime-tensorrt": "ONNX Runtime, TensorRT,",
        "onnxruntime-cpu": "ONNX Runtime, CPU,",
    }
)
STEPS = Labels(
    baseline="Baseline",
    decode_resize="+ decode, resize",
    workers="+ workers",
    batch="+ batch",
    fp16="+ FP16",
)
SYSTEMS = Labels(
    {
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
)
