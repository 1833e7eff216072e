// SPDX-License-Identifier: Apache-2.0
#include "base/settings_table.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace kolo::base {
namespace {

using S = Settings;
using Type = SettingType;

constexpr double kKi = 1024;
constexpr double kMi = 1024 * kKi;
constexpr double kGi = 1024 * kMi;
constexpr double kTi = 1024 * kGi;
constexpr bool kShared = true;
constexpr bool kOwn = false;

// clang-format off
// constexpr, so that the table exists when a program calls `init` in a constructor of a global object.
constexpr auto kRows = std::to_array<SettingRow>({
    {"KOLO_TIMEOUT_S", &S::timeout_s, Type::seconds, 0.001, 1e9, kOwn, "",
     "How long any wait may take before it fails with an error that names the tensor and the ranks that are missing."},
    {"KOLO_STALL_WARNING_S", &S::stall_warning_s, Type::seconds, 0.001, 1e9, kShared,
     "HOROVOD_STALL_CHECK_TIME_SECONDS",
     "After how long a tensor that some ranks have not submitted is reported, once, with those ranks, and a message "
     "that waits, with its peer; a planned batch that somebody waits for is then broken up."},
    {"KOLO_CONNECT_TIMEOUT_S", &S::connect_timeout_s, Type::seconds, 0.001, 1e9, kShared, "",
     "How long `init` waits in each of its steps for the other ranks: to come at all, to share memory, to connect. "
     "Then it fails on every rank, and says who was missing. `MPI_Init` gets as long when `init` calls it; a process "
     "that is still in there then ends."},
    {"KOLO_ALONE", &S::alone, Type::boolean, 0, 0, kOwn, "",
     "Whether `init` makes a world of one, whatever launcher has started this process."},
    {"KOLO_STORE", &S::store, Type::text, 0, 0, kOwn, "",
     "Where the ranks of a job meet that neither MPI nor another launcher has started: `tcp://host:port`, where rank 0 "
     "listens, or `file:///path`, a file (or a directory) that all ranks see. Needs `KOLO_RANK` and `KOLO_SIZE`."},
    {"KOLO_RANK", &S::rank, Type::integer, -1, kMi, kOwn, "",
     "Which rank this process is of a job that meets at `KOLO_STORE`, from 0; -1: none is given."},
    {"KOLO_SIZE", &S::size, Type::integer, 0, kMi, kOwn, "",
     "How many ranks the job has that meets at `KOLO_STORE`; 0: none is given."},
    {"KOLO_JOB_KEY", &S::job_key, Type::secret, 0, 0, kOwn, "",
     "A secret that all ranks of a job know, and nobody else: a process without it cannot join the start. Empty: who "
     "reaches the port of rank 0 is trusted. (MPI has its own ways.) Never printed."},
    {"KOLO_KEEPER", &S::keeper, Type::secret, 0, 0, kOwn, "",
     "Where a process finds the `kolo-run` that has started it in a job whose ranks may come and go. `kolo-run` sets "
     "it. Never printed."},
    {"KOLO_MPI", &S::mpi, Type::text, 0, 0, kOwn, "",
     "Which MPI is opened where a launcher of MPI has started the process and the program links none: a file, by path "
     "or by a name that the loader finds (`libmpi.so.40`). Empty: that of the launcher; needed where several are "
     "installed and the launcher, as Slurm's, starts programs of any. An error if the process has loaded another MPI."},
    {"KOLO_LATCH_TIMEOUT_S", &S::latch_timeout_s, Type::seconds, 0.001, 1e9, kShared, "",
     "How long a rank whose deadline has passed, or that has reported an error, waits for rank 0's decision before it "
     "fails by itself. Every rank's engine must answer rank 0 within half of it, or the error names that rank as "
     "stopped."},
    {"KOLO_LOG_LEVEL", &S::log_level, Type::log_level, 0, 0, kOwn, "HOROVOD_LOG_LEVEL",
     "The least important level that is logged; `fatal`, Horovod's word, means `off`."},
    {"KOLO_PRINT_SETTINGS", &S::print_settings, Type::boolean, 0, 0, kOwn, "",
     "Whether rank 0 prints all effective settings at `init`."},
    {"KOLO_FUSION_THRESHOLD", &S::fusion_threshold_bytes, Type::bytes, 0, kTi, kShared, "HOROVOD_FUSION_THRESHOLD",
     "How many bytes of tensors are gathered into one batch; 0 gives every tensor a batch of its own."},
    {"KOLO_OPEN_BATCHES", &S::open_batches, Type::integer, 1, 64, kShared, "",
     "How many batches of one process set may be under way at once; what becomes ready meanwhile is gathered."},
    {"KOLO_CACHE_CAPACITY", &S::cache_capacity, Type::integer, 8, kMi, kShared, "HOROVOD_CACHE_CAPACITY",
     "How many tensors are known by number: a rank submits such a tensor with one store instead of a description."},
    {"KOLO_GROUPS", &S::groups, Type::integer, 0, 16383, kShared, "",
     "How many groups a rank can be a member of at once, its world not counted: each has room in the memory that a "
     "node's ranks share, which takes none before it is used. Each direction of messages between two ranks' GPUs takes "
     "the place of one, too."},
    {"KOLO_PLAN", &S::plan, Type::boolean, 0, 0, kShared, "",
     "Whether the batches of a step are remembered and repeated once steps repeat."},
    {"KOLO_RANKS_PER_NODE", &S::ranks_per_node, Type::integer, 0, kMi, kShared, "",
     "Cuts the ranks of one machine into virtual nodes of this many, the last one possibly smaller, to test what "
     "happens between nodes; 0 leaves the machine whole."},
    {"KOLO_TREE_FANOUT", &S::tree_fanout, Type::integer, 1, 1024, kShared, "",
     "How many nodes report to one node in the tree of control connections."},
    {"KOLO_INTERFACE", &S::interface, Type::text, 0, 0, kOwn, "",
     "The network that control connections use, and UCX: the name of an interface (`eth0`), or an address with its "
     "prefix (`10.0.0.0/8`). Empty: whichever address answers, and for UCX the interfaces by which control connections "
     "reached other hosts, beside all devices for RDMA. `UCX_NET_DEVICES`, where it is set, wins for UCX. Where RDMA "
     "is wanted, set that one: an interface alone leaves devices for RDMA out."},
    {"KOLO_TRANSPORT", &S::transport, Type::transport, 0, 0, kShared, "",
     "What carries data between nodes: UCX, or what comes with the start (`mpi`): MPI under `mpirun`, which needs "
     "`MPI_THREAD_MULTIPLE` for it; queues between ranks as threads. `auto` takes UCX between machines where every "
     "rank has it, else what comes with the start, or UCX where that cannot carry data, and `kolo-info` says why."},
    {"KOLO_SLOT_BYTES", &S::slot_bytes, Type::bytes, 0, 16 * kMi, kShared, "",
     "The size of one of a rank's slots in shared memory, through which batches stream in chunks; 0 chooses by the "
     "size of a core's cache and the number of ranks, and less than 256 is 256."},
    {"KOLO_SLOTS", &S::slots, Type::integer, 0, 64, kShared, "",
     "How many slots a rank has: how many chunks are under way at once; 0 chooses 4 on one machine and 16 on several, "
     "and 1 is 2."},
    {"KOLO_ROUTES", &S::routes, Type::text, 0, 0, kShared, "",
     "Which sizes of which collective take which route inside a node, where that is not as `kolo-info` prints it: "
     "`allreduce:0-1K=small,none=flat;message:32K-=peers`. An entry names a collective (or `message`, or `*`: all that "
     "have the route), perhaps numbers of ranks (`reduce@2-4:...`), and the sizes of some routes, both ends included. "
     "docs/tuning.md says what the routes are."},
    {"KOLO_CHUNK_BYTES", &S::chunk_bytes, Type::bytes, 256, 16 * kMi, kShared, "",
     "The smallest chunk into which an all-reduce is cut so that copying and reducing overlap."},
    {"KOLO_PAST_CACHE_BYTES", &S::past_cache_bytes, Type::bytes, 0, kTi, kShared, "",
     "From how many bytes on results that do not replace the inputs are written with non-temporal stores, which do not "
     "fill the cache; copies (broadcasts, gathers, all-to-alls) from an eighth of the shared cache on, or from all of "
     "it up to 32 MiB, divided by the ranks of the node, if that is more."},
    {"KOLO_STEP_BYTES", &S::step_bytes, Type::bytes, 0, kGi, kShared, "",
     "How many bytes more a small all-reduce between nodes may send to save one step of communication: about the "
     "bandwidth of the link times its latency."},
    {"KOLO_MESSAGE_RING", &S::message_ring_bytes, Type::bytes, 4 * kKi, kGi, kShared, "",
     "The size of the ring in shared memory through which a rank describes tensors that have no number yet."},
    {"KOLO_LOG_RING", &S::log_ring_bytes, Type::bytes, 4 * kKi, kGi, kShared, "",
     "The size of the ring in shared memory that holds the list of batches a node's ranks have yet to read."},
    {"KOLO_MAILBOX", &S::mailbox_capacity, Type::integer, 1, kMi, kOwn, "",
     "How many submissions wait for the engine before the submitting thread helps it."},
    {"KOLO_SPIN_US", &S::spin_us, Type::integer, -1, 1e9, kOwn, "",
     "For how many microseconds a waiting thread looks before it sleeps; -1 chooses by the CPUs there are."},
    {"KOLO_GPU_BACKEND", &S::gpu_backend, Type::gpu_backend, 0, 0, kShared, "",
     "What reduces tensors that lie on a GPU: NCCL, or the CPU by way of pinned memory (`staged`), for machines where "
     "NCCL does not work."},
    {"KOLO_GPU_BUFFERS", &S::gpu_buffers, Type::integer, 2, 16, kShared, "",
     "How many fusion buffers a GPU has, each of `KOLO_FUSION_THRESHOLD`: while one is reduced the next is packed."},
    {"KOLO_GPU_DIRECT_BYTES", &S::gpu_direct_bytes, Type::bytes, 0, kTi, kShared, "",
     "Tensors on a GPU of at least this size are reduced where they lie; smaller ones, where several can share a "
     "collective, in a fusion buffer."},
    {"KOLO_SHARE_DEVICE", &S::share_device, Type::boolean, 0, 0, kShared, "",
     "Whether several ranks, or several contexts of a process by NCCL, may use one GPU; if not, that is an error."},
    {"KOLO_GPU_MEMORY_LIMIT", &S::gpu_memory_limit_bytes, Type::bytes, 0, kTi, kOwn, "",
     "How much memory of its GPU a context may use for itself: fusion buffers, what the kernels work from, and arenas; "
     "0: as much as it needs. What NCCL and CUDA use is not counted. Needing more is an error on every rank."},
    {"KOLO_LOG_PLACEMENT", &S::log_placement, Type::boolean, 0, 0, kOwn, "",
     "Whether each tensor's first collective is logged, whatever `KOLO_LOG_LEVEL`: on which device it runs, by what, "
     "whether the tensor is reduced where it lies or in a buffer, and why."},
    {"KOLO_RECORDER", &S::recorder, Type::file, 0, 0, kOwn, "",
     "The directory in which each rank records what it does, for `kolo-why`; `off`: nothing is recorded. Empty: `kolo` "
     "in the user's runtime directory (`XDG_RUNTIME_DIR`), else `kolo-<uid>` in `TMPDIR` if that is a folder, else in "
     "`/tmp`. The newest 16 jobs that did not end in order are kept."},
    {"KOLO_TIMELINE", &S::timeline, Type::file, 0, 0, kShared, "HOROVOD_TIMELINE",
     "The file of a timeline of all ranks, which opens in Perfetto (docs/looking.md): a new one, or a regular file, "
     "which is emptied. Empty: none."},
    {"KOLO_CHECK_NAN", &S::check_nan, Type::boolean, 0, 0, kShared, "",
     "Whether a reduction whose input has a NaN is refused, with an error that names tensor, rank, step and element. "
     "It reads every input once more; of a device it waits for the input's stream, and copies it to the host."},
    {"KOLO_CHECK_REPLICAS", &S::check_replicas, Type::replicas, 0, 0, kShared, "",
     "When optimizers compare their parameters over all ranks, as words with commas between them: `first`, before the "
     "first step; a number N, also after every N-th step; `off`, never; and `-PATTERN`, without the parameters of such "
     "names, in which `*` matches any run of characters: `100,-*.expert.*`. If ranks differ, an error on all of them "
     "names the first parameter that differs, and the ranks that have other values (docs/looking.md)."},
    {"KOLO_METRICS_FILE", &S::metrics_file, Type::file, 0, 0, kOwn, "",
     "The file of this rank's metrics, as Prometheus' node_exporter reads it (docs/looking.md). `%r` stands for the "
     "rank; without it rank 0 takes the name as it is, and each other rank puts its number before the ending: "
     "`kolo.prom`, `kolo.1.prom`, ... Empty: none."},
    {"KOLO_METRICS_INTERVAL_S", &S::metrics_interval_s, Type::seconds, 0.01, 1e6, kOwn, "",
     "How often that file is replaced, and once more at the end."},
    {"KOLO_AS_GLOO", &S::as_gloo, Type::boolean, 0, 0, kOwn, "",
     "Whether `kolo_torch` gives a PyTorch program that asks for Gloo a stand-in over Kolo (docs/frameworks.md). All "
     "ranks need it, or all get Gloo."},
});
// clang-format on

/// How many letters must be inserted, removed or replaced to turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

Span<const SettingRow> settings_table() { return {kRows.data(), kRows.size()}; }

const SettingRow* find_setting(std::string_view name) {
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const SettingRow& r) { return r.name == name; });
  return row == kRows.end() ? nullptr : &*row;
}

bool names_file(std::string_view variable) {
  return std::any_of(kRows.begin(), kRows.end(), [&](const SettingRow& row) {
    return row.type == SettingType::file && (row.name == variable || row.alias == variable);
  });
}

const SettingRow& nearest_setting(std::string_view name) {
  return *std::min_element(kRows.begin(), kRows.end(), [&](const SettingRow& a, const SettingRow& b) {
    return edit_distance(name, a.name) < edit_distance(name, b.name);
  });
}

}  // namespace kolo::base
