# SPDX-License-Identifier: Apache-2.0
"""Training that goes on when a worker dies: torchrun starts all of them again, and they go on from the checkpoint.

    torchrun --nproc-per-node 3 --max-restarts 2 elastic.py --checkpoint /tmp/digits.pt
"""

import argparse
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

try:
    import kolo_torch  # noqa: F401  where PyTorch does not load it by itself
except ImportError:
    pass
from digits import accuracy, digits, network, place


def save(path, model, optimizer, epoch):
    """At once or not at all: a worker may die here, too."""
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path + ".part")
    os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="kolo")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--kill-in-epoch", type=int, help="the last rank kills itself there, in the first round")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: this worker's GPU")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = place(arguments.device)
    dist.init_process_group(arguments.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    first_round = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    (pixels, labels), test = digits(device)
    torch.manual_seed(0)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    begin = 0
    if os.path.exists(arguments.checkpoint):
        saved = torch.load(arguments.checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin = saved["epoch"]
    for epoch in range(begin, arguments.epochs):
        order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(epoch))
        for step, batch in enumerate(order.split(60)):
            if first_round and epoch == arguments.kill_in_epoch and step == 5 and rank == size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            mine = batch[rank::size]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pixels[mine]), labels[mine]).backward()
            optimizer.step()
        if rank == 0:
            save(arguments.checkpoint, model.module, optimizer, epoch + 1)
    if rank == 0:
        print(f"{size} ranks, epochs {begin} to {arguments.epochs}: accuracy {100 * accuracy(model, test):.1f} %")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
