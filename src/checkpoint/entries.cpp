// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/entries.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string_view>
#include <utility>

#include <kolo/error.hpp>

#include "base/fields.hpp"
#include "base/hash.hpp"
#include "checkpoint/index.hpp"

namespace kolo {
namespace checkpoint {
namespace {

/// Of scalars, so that ranks that have counted differently find out: " = <the bits of the value>".
std::string bits_of(const ConstTensorView& view) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  const auto* bytes = static_cast<const unsigned char*>(view.data());
  for (std::size_t i = size_of(view.dtype()); i-- > 0;) text += {digits[bytes[i] >> 4U], digits[bytes[i] & 15U]};
  return " = 0x" + text;
}

std::string hash_of(const CheckpointEntry& entry) {
  return std::to_string(base::hash_memory(entry.view.data(), static_cast<std::size_t>(entry.view.bytes())));
}

bool is_alike(const CheckpointEntry& entry) {
  return entry.held == Held::alike || entry.held == Held::with_some_pieces;
}

using ByName = std::map<std::string_view, const Parameter*>;

/// The one that is named so, or by what stands behind a '/'; the longest name that `fits`.
template <class Fits>
const Parameter* find_by_ending(std::string_view name, const ByName& list, const Fits& fits) {
  while (true) {
    const auto found = list.find(name);
    if (found != list.end() && fits(*found->second)) return found->second;
    const std::size_t slash = name.find('/');
    if (slash == std::string_view::npos) return nullptr;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace

void check_entries(const CheckpointEntries& entries) {
  std::set<std::string_view> names;
  for (const CheckpointEntry& entry : entries) {
    const std::string name = quoted_name(entry.name);
    if (entry.name.empty() || entry.name.back() == '/') {
      throw Error(ErrorCode::invalid_argument, name + " has no name behind the '/'; every tensor needs its own");
    }
    if (!is_utf8(entry.name)) throw Error(ErrorCode::invalid_argument, name + " is not UTF-8; names must be");
    if (!names.insert(entry.name).second) {
      throw Error(ErrorCode::invalid_argument, "two tensors are named " + name + "; names must differ");
    }
    if (entry.view.device() != cpu()) {
      throw Error(ErrorCode::unsupported,
                  name + " is on " + to_string(entry.view.device()) + "; only memory of the CPU is supported");
    }
    if (entry.view.data() == nullptr && entry.view.elements() != 0) {
      throw Error(ErrorCode::invalid_argument, name + " is a null pointer");
    }
    if (entry.held == Held::piece &&
        (entry.first < 0 || entry.first > entry.shape.elements() - entry.view.elements())) {
      throw Error(ErrorCode::invalid_argument,
                  name + " is the state of a piece that does not lie in its parameter; give the parameters that the "
                         "ShardedOptimizer was made with");
    }
  }
}

std::vector<std::string> shared_by_ranks(const CheckpointEntries& entries) {
  std::vector<std::string> texts;
  for (const CheckpointEntry& entry : entries) {
    if (entry.held == Held::piece || entry.held == Held::with_some_pieces) continue;
    texts.push_back(entry.name + ' ' + std::string(to_string(entry.view.dtype())) + ' ' + to_string(entry.shape));
    if (entry.shape.rank() == 0 && entry.held == Held::alike) texts.back() += bits_of(entry.view);
  }
  return texts;
}

std::string hashes_of(const CheckpointEntries& entries) {
  std::vector<std::string> fields;
  for (const CheckpointEntry& entry : entries) {
    if (is_alike(entry)) fields.insert(fields.end(), {entry.name, hash_of(entry)});
  }
  return base::join_fields(fields);
}

void check_alike(const CheckpointEntries& entries, const std::string& hashes_of_root) {
  const std::vector<std::string> fields = base::split_fields(hashes_of_root);
  std::map<std::string_view, std::string_view> of_root;
  for (std::size_t i = 0; i + 1 < fields.size(); i += 2) of_root.emplace(fields[i], fields[i + 1]);
  for (const CheckpointEntry& entry : entries) {
    if (!is_alike(entry)) continue;
    const auto found = of_root.find(entry.name);
    if (found != of_root.end() && found->second == hash_of(entry)) continue;
    throw Error(ErrorCode::mismatch,
                described(entry) + " has other values than on rank 0; ranks must hold the same, of which a checkpoint "
                                   "keeps one: broadcast_parameters and broadcast_optimizer_state make them equal");
  }
}

std::string described(const CheckpointEntry& entry) {
  return quoted_name(entry.name) + ' ' + std::string(to_string(entry.view.dtype())) + ' ' + to_string(entry.shape);
}

std::vector<std::size_t> written_by(int rank, int size, const CheckpointEntries& entries) {
  std::vector<std::size_t> own, shared;
  std::int64_t of_root = 0;  // bytes that rank 0 writes in any case
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const CheckpointEntry& entry = entries[i];
    if (entry.held == Held::alike) {
      shared.push_back(i);
      continue;
    }
    if (entry.held == Held::apart) of_root += entry.view.bytes();
    if (entry.held == Held::piece || rank == 0) own.push_back(i);
  }
  std::stable_sort(shared.begin(), shared.end(),
                   [&](std::size_t a, std::size_t b) { return entries[a].view.bytes() > entries[b].view.bytes(); });
  using Load = std::pair<std::int64_t, int>;  // bytes, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int each = 0; each < size; ++each) loads.emplace(each == 0 ? of_root : 0, each);
  for (const std::size_t i : shared) {
    const auto [bytes, writer] = loads.top();
    loads.pop();
    loads.emplace(bytes + entries[i].view.bytes(), writer);
    if (writer == rank) own.push_back(i);
  }
  // In a file the elements of larger types come first, so that all are aligned.
  std::stable_sort(own.begin(), own.end(), [&](std::size_t a, std::size_t b) {
    return size_of(entries[a].view.dtype()) > size_of(entries[b].view.dtype());
  });
  return own;
}

}  // namespace checkpoint

namespace {

/// The pieces of an optimizer's state, and the parameters that they are pieces of.
class Pieces {
 public:
  Pieces(Span<const Parameter> parameters, Span<const Parameter> pieces) {
    for (const Parameter& parameter : parameters) wholes_.emplace(parameter.name, &parameter);
    for (const Parameter& piece : pieces) parts_.emplace(piece.name, &piece);
  }

  /// Makes the entry of a state that goes with a piece what it is. Those of all parameters, and those of none that is
  /// in pieces, stay as they are.
  void place(detail::CheckpointEntry& entry, std::string_view name) const {
    if (name.find('/') == std::string_view::npos) return;
    const bool is_number = entry.view.shape().rank() == 0;  // pieces are rows
    const Parameter* const piece = checkpoint::find_by_ending(name, parts_, [&](const Parameter& part) {
      return is_number || part.value.elements() == entry.view.elements();
    });
    if (piece == nullptr) return;
    if (is_number) {
      entry.held = detail::Held::with_some_pieces;
      return;
    }
    const Parameter* const whole =
        checkpoint::find_by_ending(piece->name, wholes_, [](const Parameter&) { return true; });
    if (whole == nullptr) return;
    const TensorView& value = whole->value;
    entry.held = detail::Held::piece;
    entry.shape = value.shape();
    entry.first = (static_cast<const char*>(piece->value.data()) - static_cast<const char*>(value.data())) /
                  static_cast<std::int64_t>(size_of(value.dtype()));
  }

 private:
  checkpoint::ByName wholes_, parts_;
};

}  // namespace

detail::CheckpointEntries detail::checkpoint_entries(Span<const Parameter> parameters, Span<const ConstNamedView> state,
                                                     Span<const Parameter> pieces, Span<const Parameter> stepped,
                                                     const CheckpointOptions& options) {
  CheckpointEntries entries;
  const auto add = [&](const std::string& prefix, const std::string& name, const ConstTensorView& view, Held held) {
    entries.push_back({prefix + name, view, view.shape(), held});
  };
  std::set<const void*> trained;
  for (const Parameter& parameter : stepped) trained.insert(parameter.value.data());
  for (const Parameter& parameter : parameters) {
    const bool is_trained = parameter.gradient || trained.count(parameter.value.data()) != 0;
    add("parameters/", parameter.name, parameter.value, is_trained ? Held::alike : Held::apart);
  }
  const Pieces all(parameters, pieces);
  for (const ConstNamedView& one : state) {
    if (one.view.elements() == 0) continue;  // a sharded optimizer has no piece of it, a replicated one does
    add("optimizer/", one.name, one.view, Held::alike);
    all.place(entries.back(), one.name);
  }
  if (options.loss_scaler != nullptr) {
    for (const ConstNamedView& one : std::as_const(*options.loss_scaler).state()) {
      add("loss_scaler/", one.name, one.view, Held::alike);
    }
  }
  for (const NamedView& one : options.values) add("program/", one.name, one.view, Held::alike);
  return entries;
}

std::vector<TensorView> detail::checkpoint_targets(Span<const Parameter> parameters, Span<const NamedView> state,
                                                   const CheckpointOptions& options) {
  std::vector<TensorView> targets;
  for (const Parameter& parameter : parameters) targets.push_back(parameter.value);
  for (const NamedView& one : state) {
    if (one.view.elements() != 0) targets.push_back(one.view);
  }
  if (options.loss_scaler != nullptr) {
    for (const NamedView& one : options.loss_scaler->state()) targets.push_back(one.view);
  }
  for (const NamedView& one : options.values) targets.push_back(one.view);
  return targets;
}

}  // namespace kolo
