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

#include "checkpoint/index.hpp"

namespace kolo {
namespace checkpoint {
namespace {

/// Of scalars, so that ranks that have counted differently find out: " = <the bits of the value>".
std::string bits_of(const TensorView& view) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  const auto* bytes = static_cast<const unsigned char*>(view.data());
  for (std::size_t i = size_of(view.dtype()); i-- > 0;) text += {digits[bytes[i] >> 4U], digits[bytes[i] & 15U]};
  return " = 0x" + text;
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
    if (entry.first && (*entry.first < 0 || *entry.first > entry.shape.elements() - entry.view.elements())) {
      throw Error(ErrorCode::invalid_argument,
                  name + " is the state of a piece that does not lie in its parameter; give the parameters that the "
                         "ShardedOptimizer was made with");
    }
  }
}

std::vector<std::string> shared_by_ranks(const CheckpointEntries& entries) {
  std::vector<std::string> texts;
  for (const CheckpointEntry& entry : entries) {
    if (entry.first) continue;
    texts.push_back(entry.name + ' ' + std::string(to_string(entry.view.dtype())) + ' ' + to_string(entry.shape));
    if (entry.shape.rank() == 0) texts.back() += bits_of(entry.view);
  }
  return texts;
}

std::string described(const CheckpointEntry& entry) {
  return quoted_name(entry.name) + ' ' + std::string(to_string(entry.view.dtype())) + ' ' + to_string(entry.shape);
}

std::vector<std::size_t> written_by(int rank, int size, const CheckpointEntries& entries) {
  std::vector<std::size_t> own, shared;
  for (std::size_t i = 0; i < entries.size(); ++i) (entries[i].first ? own : shared).push_back(i);
  std::stable_sort(shared.begin(), shared.end(),
                   [&](std::size_t a, std::size_t b) { return entries[a].view.bytes() > entries[b].view.bytes(); });
  using Load = std::pair<std::int64_t, int>;  // bytes, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int each = 0; each < size; ++each) loads.emplace(0, each);
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

detail::CheckpointEntries detail::checkpoint_entries(Span<const Parameter> parameters, Span<const NamedView> state,
                                                     Span<const Parameter> pieces, const CheckpointOptions& options) {
  CheckpointEntries entries;
  const auto add = [&](const std::string& prefix, const std::string& name, const TensorView& view) {
    entries.push_back({prefix + name, view, view.shape(), std::nullopt});
  };
  checkpoint::ByName wholes, parts;
  for (const Parameter& parameter : parameters) {
    add("parameters/", parameter.name, parameter.value);
    wholes.emplace(parameter.name, &parameter);
  }
  for (const Parameter& piece : pieces) parts.emplace(piece.name, &piece);
  for (const NamedView& one : state) {
    if (one.view.elements() == 0) continue;  // a sharded optimizer has no piece of it, a replicated one does
    add("optimizer/", one.name, one.view);
    if (one.name.find('/') == std::string::npos) continue;  // of all parameters
    const Parameter* const piece = checkpoint::find_by_ending(
        one.name, parts, [&](const Parameter& part) { return part.value.elements() == one.view.elements(); });
    if (piece == nullptr) continue;
    const Parameter* const whole =
        checkpoint::find_by_ending(piece->name, wholes, [](const Parameter&) { return true; });
    if (whole == nullptr) continue;
    const TensorView& value = whole->value;
    entries.back().shape = value.shape();
    entries.back().first = (static_cast<const char*>(piece->value.data()) - static_cast<const char*>(value.data())) /
                           static_cast<std::int64_t>(size_of(value.dtype()));
  }
  if (options.loss_scaler != nullptr) {
    for (const NamedView& one : options.loss_scaler->state()) add("loss_scaler/", one.name, one.view);
  }
  for (const NamedView& one : options.values) add("program/", one.name, one.view);
  return entries;
}

}  // namespace kolo
