# SPDX-License-Identifier: Apache-2.0
"""A training loop of Horovod's, with its import changed:

    torchrun --nproc-per-node 4 horovod_style.py [--device cuda]
"""

import argparse

import torch

import kolo_torch.horovod as hvd  # was: import horovod.torch as hvd
from digits import accuracy, digits, network, place


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: this worker's GPU")
    torch.set_num_threads(1)
    hvd.init()
    device = place(parser.parse_args().device)
    torch.manual_seed(hvd.rank())  # others on each rank ...
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # ... and now the same
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    (pixels, labels), test = digits(device)
    for epoch in range(20):
        order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(64):
            mine = batch[hvd.rank() :: hvd.size()]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pixels[mine]), labels[mine]).backward()
            optimizer.step()
    result = hvd.allreduce(accuracy(model, test), name="accuracy")
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks: accuracy {100 * result:.1f} %")
    hvd.shutdown()


if __name__ == "__main__":
    main()
