"""CLIP-style embedding: which images of a folder are nearest to one of them?

python -m examples.clip_search FOLDER QUERY.jpg MODEL       # openai/clip-vit-base-patch32
"""

import sys

import torch
from transformers import AutoModel, CLIPModel

import wallclock
from examples import arguments
from examples.replace_dataloader import normalize

#: Of OpenAI's CLIP models: image_mean and image_std in their preprocessor_config.json.
MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073])
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711])


@torch.inference_mode()
def embed(items: wallclock.ImageSources, network: CLIPModel) -> tuple[list[str], torch.Tensor]:
    """Ids, and vectors of length 1 (n, dim), of all images that can be read."""
    ids, vectors = [], []
    size = network.vision_model.config.image_size
    with wallclock.open_images(items, size, output="torch") as batches:
        for batch in batches:
            pooled = network.vision_model(pixel_values=normalize(batch.images, MEAN, STD))[1]
            vectors.append(torch.nn.functional.normalize(network.visual_projection(pooled)))
            ids += batch.ids
            for failure in batch.failures:
                print("skipped", failure["id"], failure["reason"], file=sys.stderr)
    return ids, torch.cat(vectors)


def main(folder: str, query: str, model: str) -> None:
    """Print the five nearest with their cosine."""
    network = AutoModel.from_pretrained(model).eval()
    ids, vectors = embed(folder, network)
    cosines = vectors @ embed([query], network)[1][0]
    for at in cosines.argsort(descending=True)[:5].tolist():
        print(f"{cosines[at]:.3f}  {ids[at]}")


if __name__ == "__main__":
    main(*arguments(__doc__, 3))
