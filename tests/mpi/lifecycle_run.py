# SPDX-License-Identifier: Apache-2.0
"""Jobs that start or end in an unusual way: what each rank is told, how mpirun ends, and that it does end.

usage: lifecycle_run.py MPIRUN PROGRAM
"""

import os
import re
import subprocess
import sys

PATIENCE_S = 600
MPIRUN, PROGRAM = sys.argv[1:3]
RANKS = 3
# A process's own exit status, whatever mpirun makes of it.
WRAPPER = '"$@"; status=$?; echo "STATUS $4 $status"; exit $status'
FAILURES = []


def run(scenario, rank, variables=None, arguments=()):
    """The exit status and the lines of a job."""
    command = [MPIRUN, "--oversubscribe", "--bind-to", "none", *arguments]
    for own in range(RANKS):  # each is told its rank, which it may need before it starts
        command += ["-np", "1", "sh", "-c", WRAPPER, "sh", PROGRAM, scenario, str(rank), str(own), ":"]
    command.pop()
    environment = {**os.environ, **(variables or {})}
    try:
        job = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        return None, (error.output or b"").decode().splitlines()
    return job.returncode, job.stdout.splitlines()


def expect(what, found, wanted, lines):
    if found != wanted:
        FAILURES.append(what)
        print(f"FAIL {what}: {found!r} instead of {wanted!r}")
        print("\n".join("     " + line for line in lines))


def told(lines):
    return sorted(line for line in lines if line.startswith(("TOLD", "FAIL")))


def done(lines):
    return sorted(line for line in lines if line.startswith("DONE"))


def leave_late(rank, per_node):
    name = f"late rank {rank}, {per_node} ranks a node"
    variables = {"KOLO_TIMEOUT_S": "2", "KOLO_RANKS_PER_NODE": str(per_node), "KOLO_TREE_FANOUT": "1"}
    status, lines = run("late", rank, variables)
    others = [str(other) for other in range(RANKS) if other != rank]
    expect(f"{name}: status", status, 0, lines)
    expect(f"{name}: all leave", done(lines), [f"DONE {each}" for each in range(RANKS)], lines)
    left = f"TOLD {rank} rank_lost: ranks {others[0]} and {others[1]} have shut down"
    expect(f"{name}: one sentence", len(told(lines)), 1, lines)
    sentence = re.sub(r"number \d+", "number N", "".join(told(lines)))
    wanted = (f"{left} and will not submit unnamed call number N.", f"{left}; no later operation can complete.")
    expect(f"{name}: the sentence", sentence in wanted, True, lines)


def leave_by_exit(rank):
    status, lines = run("exit", rank, arguments=("--mca", "orte_abort_on_non_zero_status", "0"))
    expect(f"exit of rank {rank}: mpirun's status, when it is told not to mind", status, 0, lines)
    expect(f"exit of rank {rank}: its own", f"STATUS {rank} 3" in lines, True, lines)
    expect(f"exit of rank {rank}: the others leave", done(lines),
           [f"DONE {other}" for other in range(RANKS) if other != rank], lines)
    expect(f"exit of rank {rank}: nobody complains", [line for line in lines if " error " in line], [], lines)


def leave_by_exit_of_a_thread():
    _, lines = run("thread", 0, arguments=("--mca", "orte_abort_on_non_zero_status", "0"))
    for rank in range(RANKS):
        expect(f"exit of a thread: the status of rank {rank}", f"STATUS {rank} 3" in lines, True, lines)


def start_with_a_bad_setting():
    status, lines = run("setting", 1, {"KOLO_RANKS_PER_NODE": "1"})
    sentences = {line.split(" ", 2)[2] for line in told(lines)}
    expect("a bad setting: one sentence", len(sentences), 1, lines)
    sentence = sentences.pop() if sentences else ""
    expect("a bad setting: names the rank", sentence.startswith("invalid_setting: rank 1: KOLO_INTERFACE=none9 "), True, lines)
    expect("a bad setting: started again", done(lines), [f"DONE {each}" for each in range(RANKS)], lines)
    expect("a bad setting: status", status, 0, lines)


def start_without_a_rank():
    status, lines = run("absent", 1, {"KOLO_CONNECT_TIMEOUT_S": "1"})
    sentences = {line for line in lines if line.startswith("kolo: ")}
    wanted = {f"kolo: MPI_Init has not returned within 1 s (KOLO_CONNECT_TIMEOUT_S) in this process (rank {rank} of "
              f"{RANKS}): another process of the job has not called kolo::init, is stopped, or has ended. This process "
              "ends." for rank in (0, 2)}
    expect("an absent rank: told", bool(sentences) and sentences <= wanted, True, lines)
    expect("an absent rank: status", status in (None, 0), False, lines)


def leave_by_exceptions():
    """What a rank says is heard by all; and what the log says on the way."""
    _, lines = run("abandon", 1, {"KOLO_LOG_LEVEL": "info", "KOLO_SLOTS": "5", "KOLO_RANKS_PER_NODE": "1"})
    reasons = ("no such file: digits.bin",
               "its text is known on that rank only (kolo::abandon, called in a handler, sends it to all ranks)")
    wanted = [f"TOLD {each} user_exception: rank 1 left the job because of an exception: {reason}. The contents of the buffers in flight "
              "are undefined." for reason in reasons for each in (0, 2)]
    expect("exceptions: told", told(lines), sorted(wanted), lines)
    expect("exceptions: all leave", done(lines), sorted(2 * [f"DONE {each}" for each in range(RANKS)]), lines)
    records = [re.sub(r"^(\[kolo \d+ \w+) [\d:.]+\]", r"\1]", line) for line in lines if line.startswith("[kolo ")]
    differs = "[kolo 1 warning] KOLO_SLOTS is 6 on this rank and 5 on rank 0, whose value is used"
    expect("exceptions: a setting that differs", records.count(differs), 2, lines)
    found = [record for record in records
             if re.match(r"\[kolo 0 info\] Kolo \S+, 3 ranks on 3 nodes \(1, 1, 1\); ranks meet by: .*MPI", record)]
    expect("exceptions: what was found is logged", len(found), 3, lines)
    chosen = [record for record in records if record.startswith("[kolo 0 info] CPU tensors: shared memory (1 ranks, 5 ")]
    expect("exceptions: what was chosen is logged", len(chosen), 3, lines)


def finalize_without_a_rank():
    """With Open MPI's own barrier in MPI_Finalize, which Kolo leaves out, a rank that has left waits for the others."""
    _, lines = run("finalize", 1, {"KOLO_TIMEOUT_S": "1", "OMPI_MCA_async_mpi_finalize": "0"},
                   arguments=("--mca", "orte_abort_on_non_zero_status", "0"))
    sentence = ("kolo: MPI_Finalize has not returned within 1 s (KOLO_TIMEOUT_S): another rank has not left. This process "
                "ends.")
    expect("MPI_Finalize does not return: told", sentence in lines, True, lines)
    expect("MPI_Finalize does not return: its own status", "STATUS 1 3" in lines, True, lines)


def fork():
    status, lines = run("fork", 0)
    refusal = "this process is a fork of a rank, and no rank itself: it cannot use its parent's context, nor join the job"
    expect("forks: told", told(lines), sorted(2 * [f"TOLD {each} unsupported: {refusal}" for each in range(RANKS)]), lines)
    expect("forks: ranks go on", done(lines), [f"DONE {each}" for each in range(RANKS)], lines)
    expect("forks: status", status, 0, lines)


def main():
    leave_late(0, 0)
    leave_late(2, 0)
    leave_late(0, 1)
    leave_late(2, 1)
    leave_by_exit(0)
    leave_by_exit(1)
    leave_by_exit_of_a_thread()
    start_with_a_bad_setting()
    start_without_a_rank()
    leave_by_exceptions()
    finalize_without_a_rank()
    fork()
    print("FAIL lifecycle" if FAILURES else "PASS lifecycle")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
