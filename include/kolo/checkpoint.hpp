// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of a training job: parameters, the optimizer's state, the loss scaler and the program's own numbers. Each
// rank writes a part. Any number of ranks reads it, with a replicated or a sharded optimizer.
//
//     kolo::save_checkpoint("run/step-100", net.parameters(), optimizer);
//     kolo::load_checkpoint("run/step-100", net.parameters(), optimizer);
//
// `optimizer` is an `Sgd` or an `AdamW`, or a class of yours with `std::vector<NamedView> state()`
// (kolo/optimizer_state.hpp says more); a `DistributedOptimizer` around one; or a `ShardedOptimizer` of one. It is
// saved under the same names in all of these cases. A save changes nothing: the training goes on as if there had been
// none.
//
// A checkpoint is a folder. "part-<rank>.safetensors" holds what that rank wrote, in the format of
// https://github.com/huggingface/safetensors: "parameters/<name>", "optimizer/<name of the state>",
// "loss_scaler/<name>", "program/<name>". "index.json" says where each tensor lies, and has an XXH64 hash of each MiB.
// Each tensor comes whole from one rank. Those that must be the same on all ranks (the parameters that the optimizer
// steps, its replicated state, the loss scaler, the program's values) are compared first, by a hash, and divided among
// the ranks. Buffers (the other tensors of the list, as running means, which each rank may compute from its own
// batches) are rank 0's. A piece of a sharded state is written by its owner, in one row, and the index says which
// elements it holds; of a number that goes with pieces (a step count of each parameter) rank 0's is written.
//
// The folder must be on a file system that all ranks see, as one folder under the same path: the disk of a single host,
// or a shared file system. (With a disk for each host, saving fails, with a sentence that says so.) An existing
// checkpoint is replaced by an atomic exchange (renameat2), which Linux's local file systems can do and NFS cannot;
// there, save under a new path each time.
#ifndef KOLO_CHECKPOINT_HPP
#define KOLO_CHECKPOINT_HPP

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <kolo/context.hpp>
#include <kolo/detail/checkpoint_entries.hpp>
#include <kolo/distributed_optimizer.hpp>
#include <kolo/export.hpp>
#include <kolo/loss_scaler.hpp>
#include <kolo/optimizer_state.hpp>
#include <kolo/parameters.hpp>
#include <kolo/sharded_optimizer.hpp>
#include <kolo/types.hpp>

#include <kolo/detail/setters.hpp>  // behind all others

namespace kolo {

struct CheckpointOptions {
  /// Saved and loaded, too, if it is set.
  LossScaler* loss_scaler = nullptr;
  /// The program's own tensors and numbers, the same on every rank: read by a save, overwritten by a load. Names
  /// differ.
  std::vector<NamedView> values;
  /// How long a rank may go without progress (64 MiB read, or written and flushed) before it is a fatal error;
  /// `KOLO_TIMEOUT_S` when empty. A save or load as a whole may take as long as it needs.
  std::optional<std::chrono::nanoseconds> timeout;

  CheckpointOptions& with_loss_scaler(LossScaler& scaler) & {
    loss_scaler = &scaler;
    return *this;
  }
  [[nodiscard]] CheckpointOptions with_loss_scaler(LossScaler& scaler) && {
    return std::move(with_loss_scaler(scaler));
  }
  /// Adds a number of the program: `with_value("step", step)`. It must stay where it is until the call has returned.
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  CheckpointOptions& with_value(std::string name, T& number) & {
    values.push_back({std::move(name), view(&number, Shape{})});
    return *this;
  }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  [[nodiscard]] CheckpointOptions with_value(std::string name, T& number) && {
    return std::move(with_value(std::move(name), number));
  }
  KOLO_SETTER(CheckpointOptions, std::vector<NamedView>, values)
  KOLO_SETTER_TIMEOUT(CheckpointOptions)
};

/// Saves a checkpoint as the folder `path`, whole or not at all. It is written into a folder beside `path`
/// (".kolo-saving-..."), flushed to the disk and renamed. Whatever is killed, and whenever: `path` is then the old
/// checkpoint or the new one, and the next save in the same place removes what is left of this one. Folders above
/// `path` are made. Returns, on all ranks, when the new checkpoint is on the disk.
///
/// Collective: every rank of the group calls it between steps, at the same place, with the same path and lists. With a
/// `ShardedOptimizer` the group is the optimizer's. Memory is that of the CPU. The memory of the tensors is not copied.
/// One save or load at a time in a group.
///
/// Throws `Error`, the same on every rank, with the sentence of the rank that failed; an old checkpoint stays as it
/// was, and the job goes on: io if a file cannot be written (a full disk, no permission), or if `path` exists and is
/// something else than a checkpoint of Kolo's or an empty folder (a link, a folder with a file that Kolo has not
/// written): nothing of anybody else's is removed; invalid_argument for names that are empty, repeated or not UTF-8;
/// unsupported for memory of a device; mismatch if ranks disagree about path, names, types, shapes or values, or if not
/// all pieces of a sharded state are there. Also what collectives throw; after a fatal error the checkpoint may have
/// been completed.
template <class Optimizer>
void save_checkpoint(const Group& group, const std::string& path, Span<const Parameter> parameters,
                     Optimizer& optimizer, const CheckpointOptions& options = {}) {
  detail::save_checkpoint(group, path, detail::entries_to_save(parameters, optimizer, options), options);
}
template <class Optimizer>
void save_checkpoint(const std::string& path, Span<const Parameter> parameters, Optimizer& optimizer,
                     const CheckpointOptions& options = {}) {
  save_checkpoint(current_context(), path, parameters, optimizer, options);
}

/// Loads a checkpoint that any number of ranks has saved: values, the optimizer's state (hyperparameters, too), the
/// loss scaler and the program's values. Nothing is changed before everything has been read and checked, on all ranks.
///
/// A rank reads what it needs: all parameters, and of a sharded state its pieces. Until the end it holds that twice.
/// Collective, as `save_checkpoint`. Several groups, and jobs, may read at once.
///
/// Throws `Error`, the same on every rank: io if files are missing, cut off or damaged (the sentence names the file,
/// the tensor and the range of bytes); mismatch if the checkpoint has not exactly the tensors of this program, by name,
/// type and shape (the sentence names the first that differs); and what `save_checkpoint` throws for bad lists.
template <class Optimizer>
void load_checkpoint(const Group& group, const std::string& path, Span<const Parameter> parameters,
                     Optimizer& optimizer, const CheckpointOptions& options = {}) {
  const std::vector<NamedView> state = detail::begin_load(optimizer, 0);
  detail::load_checkpoint(group, path, detail::entries_with(parameters, optimizer, detail::read_only(state), options),
                          detail::checkpoint_targets(parameters, state, options), options);
  detail::end_load(optimizer, 0);
}
template <class Optimizer>
void load_checkpoint(const std::string& path, Span<const Parameter> parameters, Optimizer& optimizer,
                     const CheckpointOptions& options = {}) {
  load_checkpoint(current_context(), path, parameters, optimizer, options);
}

/// Saves checkpoints in the background. `save` copies what this rank writes, and returns. A thread of this object's own
/// writes it; what it exchanges with other ranks goes through a group of its own, and so never meets the program's
/// calls. Use it from one thread. Destroy it before the context ends.
///
///     kolo::CheckpointWriter writer(kolo::world());
///     writer.save("run/step-100", net.parameters(), optimizer);     // and train on
///     writer.wait();
class KOLO_API CheckpointWriter {
 public:
  /// Makes the group of its own. Collective. Throws `Error` as `Group::of`.
  explicit CheckpointWriter(const Group& group);
  CheckpointWriter() : CheckpointWriter(current_context()) {}
  /// Waits for the save that is being written. An error that `wait` has not thrown is lost: call `wait` first.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// `wait()`, then begins to save. Collective; returns when all ranks have compared what they must hold alike, by a
  /// hash, and have copied what they write: about 1/size of that, and this rank's pieces. Throws `Error`: what `wait`
  /// throws (then nothing was begun), what `save_checkpoint` throws for bad lists, and out_of_memory if a rank has no
  /// memory for the copy.
  template <class Optimizer>
  void save(const std::string& path, Span<const Parameter> parameters, Optimizer& optimizer,
            const CheckpointOptions& options = {}) {
    wait();
    start(path, detail::entries_to_save(parameters, optimizer, options), options);
  }
  /// Returns when the last save is on the disk; at once, if there is none. Throws its `Error`, once: as
  /// `save_checkpoint`.
  void wait();
  /// Whether a save is being written. Local; ranks may get different answers.
  [[nodiscard]] bool is_writing() const noexcept;

 private:
  void start(const std::string& path, const detail::CheckpointEntries& entries, const CheckpointOptions& options);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo

#undef KOLO_SETTER
#undef KOLO_SETTER_TIMEOUT

#endif  // KOLO_CHECKPOINT_HPP
