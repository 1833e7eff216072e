#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the checker of names: what stands for two things is reported, and so is an entry that nothing needs."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True
import check_names  # noqa: E402

TREE = {
    "src/a/way.hpp": "namespace a {\nclass Way final : public Base {\n  enum class State { on };  // enum class Kind {\n"
                     "  struct Part {\n    int enum_class;\n  };\n};\n}  // namespace a\n",
    "src/a/road.hpp": "namespace a {\nstruct KOLO_API Road { int part() { struct Inside { int x; }; return 0; } };\n"
                      "struct Way::Part { int x; };\n}\n",
    "src/b/street.hpp": "#define WAY(x) struct Way { x }\nnamespace b::c {\nstruct Part {};\nconst char* text = \"struct Road {\";\n}\n",
    "src/b/street.cpp": "struct Road {};\n",
}


def wrong(changes, same_files=None, same_types=None):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**TREE, **changes}.items():
            file = Path(root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        found = check_names.Names(Path(root)).check(same_files or {}, same_types or {})
    return [one.split(":")[0] for one in found]


class Names(unittest.TestCase):
    def test_names_of_one_thing_pass(self):
        self.assertEqual(wrong({}), [])

    def test_a_file_name_in_two_folders_is_reported_unless_it_is_listed(self):
        twice = {"src/b/way.cpp": ""}
        self.assertEqual(wrong(twice), ["the file name way is in src/a, src/b"])
        self.assertEqual(wrong(twice, same_files={"one implements the other": ["way"]}), [])

    def test_a_type_in_two_headers_is_reported_unless_it_is_listed(self):
        twice = {"src/b/other.hpp": "namespace b {\nenum class Way : std::uint8_t { on };\n}\n"}
        self.assertEqual(wrong(twice), ["the type Way is in src/a/way.hpp, src/b/other.hpp"])
        self.assertEqual(wrong(twice, same_types={"both go somewhere": ["Way"]}), [])

    def test_an_enum_of_a_class_counts_and_a_struct_of_a_class_does_not(self):
        twice = {"src/b/other.hpp": "class Other {\n  enum class State { off };\n  struct Road { int x; };\n};\n"}
        self.assertEqual(wrong(twice), ["the type State is in src/a/way.hpp, src/b/other.hpp"])

    def test_an_entry_that_nothing_needs_is_reported(self):
        self.assertEqual(wrong({}, same_files={"why": ["way"]}, same_types={"why": ["Road"]}),
                         ["the file name way is not there twice any more", "the type Road is not there twice any more"])


if __name__ == "__main__":
    unittest.main()
