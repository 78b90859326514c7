"""A rank of torchrun: its part of the images, a model in DistributedDataParallel, by gloo."""

import sys
from pathlib import Path

import timm
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import transforms

STEPS = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])


class Photos(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).iterdir())

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return STEPS(Image.open(self.paths[index]).convert("RGB")), index % 2


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    model = timm.create_model("resnet18", pretrained=False, num_classes=2)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    photos = Photos(sys.argv[1])
    for images, labels in DataLoader(photos, 8, sampler=DistributedSampler(photos)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
