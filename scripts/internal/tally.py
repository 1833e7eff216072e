# SPDX-License-Identifier: Apache-2.0
"""Counts what a ctest run did: each GoogleTest case as one, every other ctest entry as one.

usage: tally.py JUNIT_XML GTEST_DIR...     prints `passed failed skipped` on stdout, what failed on stderr: each case by
                                           name, then the end of what each such entry printed

Each GTEST_DIR holds the JSON that a tree's GoogleTest executables wrote in this run, named as their ctest entries. An
executable that wrote none (it crashed, or ran out of time), or that failed although all its cases passed (a
sanitizer's report at exit), counts one failure more.
"""

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def count_cases(report, entry, failures):
    passed = failed = skipped = 0
    for suite in json.loads(report.read_text(encoding="utf-8"))["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("failures"):
                failed += 1
                failures.append(f"{entry}: {suite['name']}.{case['name']}")
            elif case["status"] == "NOTRUN" or case.get("result") == "SKIPPED":
                skipped += 1
            else:
                passed += 1
    return passed, failed, skipped


def end_of(entry, lines=40):
    output = (entry.findtext("system-out") or "").rstrip().splitlines()
    return "\n".join(f"  {line[:200]}" for line in output[-lines:])


def main():
    junit, gtest_dirs = Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]]
    passed = failed = skipped = 0
    failures, ends = [], []
    for entry in ET.parse(junit).getroot().iter("testcase"):
        name, status = entry.get("name"), entry.get("status")
        failures_before = len(failures)
        report = next((file for folder in gtest_dirs if (file := folder / f"{name}.json").is_file()), None)
        if report:
            counts = count_cases(report, name, failures)
            passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
            if status != "run" and counts[1] == 0:
                failed += 1
                failures.append(f"{name}: all its cases passed, but the program failed")
        elif status == "run":
            passed += 1
        elif status in ("disabled", "notrun"):
            # ctest says notrun for a program that is missing as well as for a fixture that failed: neither is harmless.
            failed += 1
            failures.append(f"{name}: did not run")
        else:
            failed += 1
            failures.append(name)
        if len(failures) > failures_before:
            ends.append(f"the end of {name}:\n{end_of(entry)}")
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    for end in ends[:5]:
        print(end, file=sys.stderr)
    print(passed, failed, skipped)


main()
