# SPDX-License-Identifier: Apache-2.0
"""What the examples of this folder share: 1797 handwritten digits (examples/data), a small network, its accuracy."""

import os
import pathlib

import torch


def place(name):
    """The device of --device: "cpu", or "cuda", this worker's by its LOCAL_RANK. (Workers may share one.)"""
    if name == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(name)


def digits(device="cpu"):
    """Pixels [n, 64] from 0 to 1 and labels [n], to train with and to test with."""
    file = pathlib.Path(__file__).parents[1] / "data" / "digits.csv"
    rows = torch.tensor([[float(cell) for cell in line.split(",")] for line in file.read_text().splitlines()])
    rows = rows.to(device)
    pixels, labels = rows[:, :64] / 16, rows[:, 64].long()
    test = torch.arange(len(rows), device=device) % 5 == 0
    return (pixels[~test], labels[~test]), (pixels[test], labels[test])


def network():
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def accuracy(model, data):
    with torch.no_grad():
        return (model(data[0]).argmax(1) == data[1]).float().mean()
