#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nvcc has made of the kernels: how many registers a thread takes, that none are kept in memory, and how wide the
loads and stores are. Reads the machine code in the object file, which needs no tool of NVIDIA's and no device.

usage: compiled_kernels_test.py OBJECT
"""
import struct
import sys
import unittest
from collections import Counter
from pathlib import Path

ARCHITECTURES = (80, 90)
# 256 threads a block: 5 blocks of them find room in the 65536 registers of a multiprocessor.
MOST_REGISTERS = 48
# kUnroll words of a thread are loaded before the first is stored.
LEAST_WIDE = 4

FATBIN = struct.pack("<IHH", 0xBA55ED50, 1, 16)  # magic, version, size of this header; a size of all follows
CUBIN = 2
REGISTERS, FRAME = 0x2F, 0x11  # attributes in .nv.info: of a function, by its number
# The lowest 12 bits of an instruction, and its width in bits 73 to 75, as NVIDIA's nvdisasm prints them.
LOADS, STORES, LOCAL = {0x980, 0x981}, {0x985, 0x986}, {0x983, 0x387}  # LD LDG, ST STG, LDL STL
WIDE = 6  # .128


def cubins(data):
    """Yields (architecture, ELF file) of all machine code in an object."""
    at = data.find(FATBIN)
    while at >= 0:
        end = at + 16 + struct.unpack_from("<Q", data, at + 8)[0]
        at += 16
        while at < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
            if kind == CUBIN:
                yield struct.unpack_from("<I", data, at + 28)[0], data[at + header:at + header + size]
            at += header + size
        at = data.find(FATBIN, end)


def sections(elf):
    """Yields (name, bytes) of an ELF file's sections."""
    table = struct.unpack_from("<Q", elf, 0x28)[0]
    count, names = struct.unpack_from("<HH", elf, 0x3C)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + 64 * i) for i in range(count)]
    for name, _, _, _, offset, size in headers:
        begin = headers[names][4] + name
        yield elf[begin:elf.index(b"\0", begin)].decode(), elf[offset:offset + size]


def attributes(info, wanted):
    """The values of an attribute of all functions."""
    values, at = [], 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        size = size if form == 4 else 0
        if form == 4 and attribute == wanted:
            values.append(struct.unpack_from("<II", info, at + 4)[1])
        at += 4 + size
    return values


def instructions(code):
    """How many there are of each (opcode, width)."""
    words = (int.from_bytes(code[at:at + 16], "little") for at in range(0, len(code), 16))
    return Counter((word & 0xFFF, word >> 73 & 7) for word in words)


class CompiledKernels(unittest.TestCase):
    object = b""

    def of_all(self):
        found = {architecture: dict(sections(elf)) for architecture, elf in cubins(self.object)}
        self.assertEqual(sorted(found), sorted(ARCHITECTURES))
        return found.items()

    def test_registers(self):
        for architecture, parts in self.of_all():
            with self.subTest(architecture=architecture):
                registers = attributes(parts[".nv.info"], REGISTERS)
                print(f"sm_{architecture}: {registers} registers")
                self.assertTrue(registers)
                self.assertLessEqual(max(registers), MOST_REGISTERS)

    def test_nothing_is_spilled(self):
        for architecture, parts in self.of_all():
            with self.subTest(architecture=architecture):
                frames = attributes(parts[".nv.info"], FRAME)
                self.assertTrue(frames)
                self.assertEqual(max(frames), 0)
                for name, code in parts.items():
                    if name.startswith(".text."):
                        spilled = {key: n for key, n in instructions(code).items() if key[0] in LOCAL}
                        self.assertEqual(spilled, {}, name)

    def test_loads_and_stores_of_16_bytes(self):
        for architecture, parts in self.of_all():
            for name, code in parts.items():
                if not name.startswith(".text."):
                    continue
                with self.subTest(architecture=architecture, kernel=name):
                    of = instructions(code)
                    for what, opcodes in (("loads", LOADS), ("stores", STORES)):
                        wide = sum(n for (opcode, width), n in of.items() if opcode in opcodes and width == WIDE)
                        print(f"sm_{architecture}: {wide} {what} of 16 bytes")
                        self.assertGreaterEqual(wide, LEAST_WIDE, what)


if __name__ == "__main__":
    CompiledKernels.object = Path(sys.argv.pop(1)).read_bytes()
    unittest.main()
