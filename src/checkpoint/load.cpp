// SPDX-License-Identifier: Apache-2.0
//
// A load: every rank reads the index, finds what it needs, reads that into memory beside, and compares hashes. Once all
// ranks have done so, the tensors are overwritten.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include <kolo/checkpoint.hpp>
#include <kolo/error.hpp>

#include "base/hash.hpp"
#include "checkpoint/disk.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/ranks.hpp"

namespace kolo {
namespace checkpoint {
namespace {

constexpr std::int64_t kLargestHeader = std::int64_t{1} << 28U;

/// Reads pieces of tensors, and checks the hash of everything that it reads.
class PartReader {
 public:
  PartReader(std::string path, const Index& index)
      : path_(std::move(path)), index_(&index), files_(index.files.size()), block_(kBlockBytes) {}

  /// A block of those that elements `first` to `first + count` of the tensor lie in: the block in which `at` lies, in
  /// bytes behind the first one. Returns how many of these bytes it held.
  std::int64_t read_block(const IndexedTensor& tensor, std::int64_t first, std::int64_t at, std::int64_t count,
                          std::byte* to) {
    const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
    const std::int64_t element = first + at / width;
    const auto piece = std::find_if(tensor.pieces.begin(), tensor.pieces.end(), [&](const Piece& one) {
      return one.first <= element && element < one.first + one.count;
    });  // check_whole has found all elements
    const std::int64_t from = (element - piece->first) * width;
    const std::int64_t end = (std::min(first + count, piece->first + piece->count) - piece->first) * width;
    const std::int64_t until = std::min(end, (from / kBlockBytes + 1) * kBlockBytes);
    read_bytes(tensor, *piece, from, until, to + at);
    return until - from;
  }

 private:
  /// Bytes `from` to `end` of a piece, which lie in one block.
  void read_bytes(const IndexedTensor& tensor, const Piece& piece, std::int64_t from, std::int64_t end, std::byte* to) {
    const File& file = opened(piece.file);
    const std::int64_t number = from / kBlockBytes, begin = number * kBlockBytes;
    const std::int64_t bytes = piece.count * static_cast<std::int64_t>(size_of(tensor.dtype));
    const std::int64_t size = std::min(kBlockBytes, bytes - begin);
    file.read_at(piece.offset + begin, block_.data(), static_cast<std::size_t>(size));
    if (base::hash_memory(block_.data(), static_cast<std::size_t>(size)) !=
        piece.hashes[static_cast<std::size_t>(number)]) {
      throw Error(ErrorCode::io, file.path() + ": " + quoted_name(tensor.name) + " is damaged: a byte from " +
                                     std::to_string(piece.offset + begin) + " to " +
                                     std::to_string(piece.offset + begin + size - 1) + " is not what was written");
    }
    std::memcpy(to, block_.data() + (from - begin), static_cast<std::size_t>(end - from));
  }

  /// The file, whose size and header were checked.
  const File& opened(std::size_t number) {
    File& file = files_[number];
    if (file.is_open()) return file;
    const IndexedFile& listed = index_->files[number];
    File fresh = File::open(path_ + '/' + listed.name);
    if (fresh.bytes() != listed.bytes) {
      throw Error(ErrorCode::io, fresh.path() + ": has " + std::to_string(fresh.bytes()) + " bytes; the index says " +
                                     std::to_string(listed.bytes));
    }
    if (listed.header_bytes > std::min(listed.bytes, kLargestHeader)) {
      throw Error(ErrorCode::io, fresh.path() + ": the index says that its header is longer than it can be");
    }
    std::string header(static_cast<std::size_t>(listed.header_bytes), '\0');
    fresh.read_at(0, header.data(), header.size());
    if (base::hash_memory(header.data(), header.size()) != listed.header_hash) {
      throw Error(ErrorCode::io, fresh.path() + ": its header is damaged: a byte from 0 to " +
                                     std::to_string(listed.header_bytes - 1) + " is not what was written");
    }
    file = std::move(fresh);
    return file;
  }

  std::string path_;
  const Index* index_;
  std::vector<File> files_;
  std::vector<std::byte> block_;
};

using Found = std::map<std::string_view, const IndexedTensor*>;

/// The tensor of the checkpoint for each entry. Throws for the first that is missing or differs.
std::vector<const IndexedTensor*> matched(const std::string& path, const CheckpointEntries& entries,
                                          const Found& found) {
  std::vector<const IndexedTensor*> tensors;
  for (const CheckpointEntry& entry : entries) {
    const auto tensor = found.find(entry.name);
    if (tensor == found.end()) {
      throw Error(ErrorCode::mismatch, path + ": has no " + described(entry) + ", which this program has");
    }
    const IndexedTensor& one = *tensor->second;
    if (one.dtype != entry.view.dtype() || one.shape != entry.shape) {
      throw Error(ErrorCode::mismatch, path + ": has " + quoted_name(one.name) + ' ' +
                                           std::string(to_string(one.dtype)) + ' ' + to_string(one.shape) +
                                           ", this program " + described(entry));
    }
    tensors.push_back(&one);
  }
  return tensors;
}

/// Throws on every rank if the checkpoint has a tensor that no rank has. Collective. (A rank of a sharded optimizer has
/// no state of parameters that have fewer elements than there are ranks.)
void check_none_is_left(const Ranks& ranks, const std::string& path, const Index& index,
                        const CheckpointEntries& entries) {
  std::vector<std::string_view> names;
  for (const CheckpointEntry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  std::vector<std::uint8_t> is_unknown;
  for (const IndexedTensor& tensor : index.tensors) {
    is_unknown.push_back(std::binary_search(names.begin(), names.end(), tensor.name) ? 0 : 1);
  }
  ranks.all_of(is_unknown);
  const auto unknown = std::find(is_unknown.begin(), is_unknown.end(), 1);
  ranks.all([&] {
    if (unknown == is_unknown.end()) return;
    const IndexedTensor& tensor = index.tensors[static_cast<std::size_t>(unknown - is_unknown.begin())];
    throw Error(ErrorCode::mismatch, path + ": has " + quoted_name(tensor.name) + ' ' +
                                         std::string(to_string(tensor.dtype)) + ' ' + to_string(tensor.shape) +
                                         ", which this program has not");
  });
}

using Bytes = std::unique_ptr<std::byte[]>;

/// Reads what a rank needs, step by step.
class Contents {
 public:
  Contents(const std::string& path, const Index& index, const CheckpointEntries& entries,
           const std::vector<const IndexedTensor*>& tensors)
      : reader_(path, index), entries_(&entries), tensors_(&tensors) {}

  /// Reads some. Whether there is more.
  bool step() {
    for (std::int64_t done = 0; done < kStepBytes && next_ < entries_->size();) {
      const CheckpointEntry& entry = (*entries_)[next_];
      const std::int64_t bytes = entry.view.bytes();
      if (at_ == 0) read_.emplace_back(new std::byte[static_cast<std::size_t>(bytes)]);
      if (at_ < bytes) {
        const std::int64_t got =
            reader_.read_block(*(*tensors_)[next_], entry.first, at_, entry.view.elements(), read_.back().get());
        at_ += got;
        done += got;
      }
      if (at_ < bytes) continue;
      at_ = 0;
      ++next_;
    }
    return next_ < entries_->size();
  }
  /// Once there is no more.
  void copy_to(Span<const TensorView> targets) const {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const auto bytes = static_cast<std::size_t>(targets[i].bytes());
      if (bytes > 0) std::memcpy(targets[i].data(), read_[i].get(), bytes);
    }
  }

 private:
  static constexpr std::int64_t kStepBytes = 64 * kBlockBytes;

  PartReader reader_;
  const CheckpointEntries* entries_;
  const std::vector<const IndexedTensor*>* tensors_;
  std::vector<Bytes> read_;
  std::size_t next_ = 0;  // entry
  std::int64_t at_ = 0;   // bytes of it that were read
};

}  // namespace
}  // namespace checkpoint

void detail::load_checkpoint(const Group& group, const std::string& path, const CheckpointEntries& entries,
                             Span<const TensorView> targets, const CheckpointOptions& options) {
  const checkpoint::Ranks ranks(group, "load_checkpoint", options.timeout);
  checkpoint::Index index;
  std::string text;
  ranks.all([&] {
    checkpoint::check_entries(entries);
    index = checkpoint::read_index(path, text);
  });
  ranks.compare({"index " + std::to_string(base::hash_memory(text.data(), text.size()))});
  std::vector<const checkpoint::IndexedTensor*> tensors;
  ranks.all([&] {
    checkpoint::Found found;
    for (const checkpoint::IndexedTensor& tensor : index.tensors) found.emplace(tensor.name, &tensor);
    tensors = checkpoint::matched(path, entries, found);
  });
  checkpoint::check_none_is_left(ranks, path, index, entries);
  checkpoint::Contents contents(path, index, entries, tensors);
  ranks.in_steps([&] { return contents.step(); });
  contents.copy_to(targets);
}

}  // namespace kolo
