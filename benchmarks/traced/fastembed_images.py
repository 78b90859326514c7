"""fastembed's image part, with a network that is made here: one convolution."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from fastembed import ImageEmbedding
from onnx import TensorProto, helper, numpy_helper

folder = Path(tempfile.mkdtemp())
weights = np.random.default_rng(0).normal(size=(512, 3, 32, 32)).astype(np.float32)
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["pixel_values", "weights"], ["maps"], strides=[32, 32]),
        helper.make_node("GlobalAveragePool", ["maps"], ["means"]),
        helper.make_node("Flatten", ["means"], ["image_embeds"]),
    ],
    "model",
    [helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, ["n", 3, 224, 224])],
    [helper.make_tensor_value_info("image_embeds", TensorProto.FLOAT, ["n", 512])],
    [numpy_helper.from_array(weights, "weights")],
)
opset = helper.make_opsetid("", 17)
onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), folder / "model.onnx")
steps = {
    "image_processor_type": "CLIPImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": 224},
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.48, 0.46, 0.41],
    "image_std": [0.27, 0.26, 0.28],
}
(folder / "preprocessor_config.json").write_text(json.dumps(steps))
model = ImageEmbedding("Qdrant/clip-ViT-B-32-vision", specific_model_path=str(folder))
paths = [str(path) for path in sorted(Path(sys.argv[1]).iterdir())]
print(sum(1 for _ in model.embed(paths, batch_size=16)))
