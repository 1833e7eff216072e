# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fully sharded data parallelism (FSDP2), with Kolo as the backend:

    torchrun --nproc-per-node 2 fsdp2.py [--backend gloo] [--device cuda]
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

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
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (size,))
    (pixels, labels), test = digits(device)
    torch.manual_seed(0)
    model = network().to(device)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(64):
            mine = batch[rank::size]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pixels[mine]), labels[mine]).backward()
            optimizer.step()
    result = accuracy(model, test)
    dist.all_reduce(result, dist.ReduceOp.MIN)
    if rank == 0:
        print(f"{size} ranks, {arguments.backend}: accuracy {100 * result:.1f} %")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
