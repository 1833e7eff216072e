# SPDX-License-Identifier: Apache-2.0
"""The steps of scripts/gpu-check, in the order in which they run: numbers first, what has held before last."""
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Ranks that share a GPU are for NCCL ranks of different hosts: each gets a host id of its own.
SHARED = {"KOLO_SHARE_DEVICE": "1", "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo",
          "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2", "NCCL_RAS_ENABLE": "0"}
STAGED = {"KOLO_GPU_BACKEND": "staged"}
# NCCL 2.30 and newer lets ranks of one host share a GPU. They reach into each other's memory as on two GPUs: by IPC, and
# without a copy where it is registered. (Their kernels take turns, unless the machine has MPS.)
PEERS = {"KOLO_SHARE_DEVICE": "1", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0",
         "NCCL_MAX_CTAS": "2", "NCCL_RAS_ENABLE": "0"}
# Of those that have changed since they last ran on a device.
CHANGED_CHECKS = ("behind_a_long_kernel", "many_in_flight", "numbers_of_calls", "data_parallel_in_an_arena")
# The benchmarks of every collective as tests of several processes: the number of wrong elements is the exit status.
COLLECTIVES = ("allreduce", "reduce", "broadcast", "allgather", "gather", "scatter", "alltoall", "reduce_scatter",
               "sendrecv", "pingpong")


@dataclass
class Step:
    name: str
    limit: int  # seconds
    command: list
    env: dict = field(default_factory=dict)
    needs: tuple = ("device",)  # also two GPUs, peer memory, torch, kolo_torch, or a program's name
    says: str = ""  # a regular expression that its output must match, if it is to pass


def processes(count, *command):
    """Each on a GPU of its own, where there are as many."""
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(count), *command]


def ranks(count, *command):
    """As processes that share a GPU."""
    return processes(count, "bash", "-c", 'NCCL_HOSTID=kolo-$OMPI_COMM_WORLD_RANK exec "$@"', "rank", *command)


def torchrun(count, *program):
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), *program]


def workers(count, *command):
    """The same, as torchrun starts them."""
    return torchrun(count, "--no-python", "bash", "-c", 'NCCL_HOSTID=kolo-$LOCAL_RANK exec "$@"', "worker",
                    sys.executable, *command)


def all_steps(prepared, work, gpus=1):
    """Records go to WORK/<name of the step>.json."""
    shapes = str(prepared / "shapes")

    def program(name, *flags):
        return [str(prepared / "bin" / name), *flags]

    def bench(mode, *flags):
        return program("kolo-bench", mode, "--device", "cuda", *flags)

    def record(name):
        return ("--json", str(work / f"{name}.json"))

    steps = []

    def add(name, limit, command, env=None, needs=("device",), on=0):
        if on:
            command, env = ranks(on, *command), {**SHARED, **(env or {})}
        steps.append(Step(name, limit, command, env or {}, needs))

    def add_peers(name, limit, command, env=None, says=""):
        env = {**(PEERS if gpus < 2 else {}), **(env or {})}
        steps.append(Step(f"peer_{name}", limit, processes(2, *command), env, ("device", "peer memory"), says))

    # 0. Where there are several GPUs, a rank on each: it must have a context there, and nowhere else.
    count = str(max(2, gpus))
    steps.append(Step("contexts", 30, [sys.executable, str(ROOT / "scripts/internal/gpu/contexts.py"), count,
                                       *processes(count, *program("gpu_hazards", "contexts"))], needs=("device", "two GPUs")))
    # 1. Packing; bin/kolo-pack-NAME of another build is measured beside.
    for pack in sorted(prepared.glob("bin/kolo-pack*")) or [Path("kolo-pack")]:
        for mib in (16, 64, 128):
            name = f"{pack.name.removeprefix('kolo-').replace('-', '_')}_{mib}M"
            add(name, 15, program(pack.name, "--shapes", shapes, "--buffer-bytes", str(mib << 20), *record(name)))
    # 2. Alone, from small to large.
    add("allreduce_alone", 40, bench("allreduce", "-b", "4", "-e", "64M", "-f", "4", "--baseline", "nccl", "-t", "0.2",
                                     *record("allreduce_alone")))
    # 3. Two ranks. Communicators are blocking; what a thread of NCCL's for every group costs instead (the baseline works
    # with blocking ones alone).
    not_blocking = {"NCCL_COMM_BLOCKING": "0"}
    grouped = bench("step", "--submit", "grouped", "-t", "3")
    small = bench("allreduce", "-b", "1K", "-e", "1K", "-t", "1")
    for name, limit, command, baseline in (("grouped_2_ranks", 25, grouped, "nccl-grouped"),
                                           ("small_2_ranks", 15, small, "nccl")):
        add(name, limit, [*command, "--baseline", baseline, *record(name)], on=2)
        add(f"{name}_not_blocking", limit, [*command, *record(f"{name}_not_blocking")], not_blocking, on=2)
    # 4. Two ranks on two GPUs, or on one as if it were two.
    wide = bench("allreduce", "-b", "1K", "-e", "8M", "-f", "32", "-n", "2", "-w", "1", "-t", "0.2")
    add_peers("allreduce", 30, [*wide, "--baseline", "nccl", *record("peer_allreduce")],
              {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,P2P"}, says="via P2P/")
    add_peers("allreduce_arena", 30, [*wide, "--arena", *record("peer_allreduce_arena")])
    add_peers("grouped", 30, [*grouped, "--baseline", "nccl-grouped", *record("peer_grouped")])
    add_peers("grouped_arena", 30, [*grouped, "--arena", *record("peer_grouped_arena")])
    add_peers("capture", 30, program("gpu_hazards", "capture"))
    add_peers("arena_freed", 30, program("gpu_hazards", "freed"))
    # 5. Gradients that come one after another, each a batch.
    for apart in (1000, 20000):
        name = f"batches_{apart // 1000}ms"
        add(name, 20, program("kolo-gpu-times", "batches", "--apart", str(apart), "-n", "20", *record(name)),
            {"KOLO_FUSION_THRESHOLD": "64K"}, on=2)
    # 6. One all-reduce, from the call until the caller goes on.
    for name, count in (("times_1_rank", 0), ("times_2_ranks", 2)):
        add(name, 10, program("kolo-gpu-times", "lone", *record(name)), on=count)
    # 7. What a program does on its GPU beside Kolo.
    add("capture", 20, program("gpu_hazards", "capture"), on=2)
    add("arena_freed", 20, program("gpu_hazards", "freed"), on=2)
    # 8. PyTorch's backend: the checks that have changed.
    add("kolo_torch", 150, [sys.executable, str(ROOT / "scripts/internal/gpu/kolo_torch.py"), str(prepared),
                            str(work / "python")], needs=("torch", "--torch"))
    c10d_test = [sys.executable, str(ROOT / "tests/c10d/c10d_gpu_test.py")]
    for how in ("nccl", "staged"):
        add(f"c10d_changed_{how}", 45, [*c10d_test, "--ranks", "2", "--backends", how, *CHANGED_CHECKS],
            needs=("device", "torch", "kolo_torch"))
    # 9. PyTorch's programs: what a step takes of the host, by Kolo and by NCCL.
    ddp = [sys.executable, str(ROOT / "bench/peers/ddp_gpu_step.py"), "--ranks", "1", "--shapes", shapes]
    add("ddp_1_rank", 30, [*ddp, *record("ddp_1_rank")], needs=("device", "torch"))
    beside = torchrun(max(2, gpus), str(ROOT / "bench/pytorch/beside_nccl.py"), "--only", "resnet50,fsdp2", "--samples", "10")
    add("beside_nccl", 60, [*beside, *record("beside_nccl")], SHARED if gpus == 1 else {},
        needs=("device", "torch", "kolo_torch"))
    # 10. Accesses of the kernels.
    add("memcheck", 90, ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9", *program("gpu_test"),
                         "--gtest_filter=*Arithmetic.*/1_nccl:*Collectives.*/1_nccl:*.OfEverySize/2_staged"],
        needs=("device", "compute-sanitizer"))

    # What has held before.
    add("kolo_info", 10, program("kolo-info"), needs=())
    add("mpi_2_ranks", 10, ranks(2, *program("kolo-bench", "allreduce", "-e", "1M", "-f", "64", "-n", "2", "-t", "0.05",
                                             "--baseline", "mpi", *record("mpi_2_ranks"))), needs=())
    add("kolo_info_devices", 10, program("kolo-info", "--devices"))
    add("step_1_rank", 30, bench("step", "--submit", "by-name,prepared,grouped", "--baseline",
                                 "nccl-per-tensor,nccl-grouped", "-t", "3", *record("step_1_rank")))
    add("gpu_test", 120, program("gpu_test"))
    add("visible_devices", 60, program("visible_devices"))
    digits = program("cuda_trainer", "--data", str(ROOT / "examples/data/digits.csv"))
    add("example_1_rank", 20, digits)
    brief = ("-n", "2", "-w", "1", "-t", "0.01", "-b", "1", "-e", "8M", "-f", "512")
    for count in (2, 4):
        for how, env in (("nccl", {}), ("staged", STAGED)):
            add(f"example_{count}_ranks_{how}", 30, digits, env, on=count)
            add(f"average_{count}_ranks_{how}", 20, bench("allreduce", *brief, "-o", "average", "-d",
                                                           "float32,float64,float16,bfloat16"), env, on=count)
            for mode in COLLECTIVES:
                add(f"{mode}_{count}_ranks_{how}", 20, bench(mode, *brief, "-d", "float32,float16,int64"), env, on=count)
    add_peers("example", 30, digits)
    for mode in COLLECTIVES[1:]:
        add_peers(mode, 20, bench(mode, *brief, "-d", "float32,float16,int64"))
    for how in ("nccl", "staged"):
        add(f"c10d_{how}", 150, [*c10d_test, "--ranks", "2,4", "--backends", how], needs=("device", "torch", "kolo_torch"))
    for script in ("ddp", "fsdp2", "horovod_style"):
        add(f"example_{script}", 60, workers(2, str(ROOT / f"examples/pytorch/{script}.py"), "--device", "cuda"), SHARED,
            needs=("device", "torch", "kolo_torch"))
    return steps
