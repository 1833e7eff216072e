# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel, with Kolo as the backend:

    torchrun --nproc-per-node 4 ddp.py [--backend gloo] [--device cuda]
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

try:
    import kolo_torch  # noqa: F401  where PyTorch does not load it by itself
except ImportError:
    pass
from digits import accuracy, digits, network, place


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="kolo")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: this worker's GPU")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = place(arguments.device)
    dist.init_process_group(arguments.backend)
    train, test = digits(device)
    torch.manual_seed(0)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dataset = TensorDataset(*train)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=64 // dist.get_world_size(), sampler=sampler)
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for pixels, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pixels), labels).backward()
            optimizer.step()
    result = accuracy(model, test)
    dist.all_reduce(result, dist.ReduceOp.MIN)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, {arguments.backend}: accuracy {100 * result:.1f} %")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
