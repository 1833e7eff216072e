// SPDX-License-Identifier: Apache-2.0
//
// A load: every rank reads the index, finds what it needs, reads that into memory beside, and compares hashes. Once all
// ranks have done so, the tensors are overwritten.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include <kolo/checkpoint.hpp>
#include <kolo/error.hpp>

#include "checkpoint/agreement.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/files.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/xxh64.hpp"

namespace kolo {
namespace checkpoint {
namespace {

constexpr std::int64_t kLargestIndex = std::int64_t{1} << 32U;
constexpr std::int64_t kLargestHeader = std::int64_t{1} << 30U;

/// Reads pieces of tensors, and checks the hash of everything that it reads.
class PartReader {
 public:
  PartReader(std::string path, const Index& index)
      : path_(std::move(path)), index_(&index), files_(index.files.size()), block_(kBlockBytes) {}

  /// `count` elements from element `first` on.
  void read(const IndexedTensor& tensor, std::int64_t first, std::int64_t count, std::byte* to) {
    const auto width = static_cast<std::int64_t>(size_of(tensor.dtype));
    for (const Piece& piece : tensor.pieces) {
      const std::int64_t from = std::max(first, piece.first);
      const std::int64_t end = std::min(first + count, piece.first + piece.count);
      if (from >= end) continue;
      read_bytes(tensor, piece, (from - piece.first) * width, (end - piece.first) * width, to + (from - first) * width);
    }
  }

 private:
  /// Bytes `from` to `end` of a piece, by the whole blocks that they lie in.
  void read_bytes(const IndexedTensor& tensor, const Piece& piece, std::int64_t from, std::int64_t end, std::byte* to) {
    const Descriptor& file = opened(piece.file);
    const std::int64_t bytes = piece.count * static_cast<std::int64_t>(size_of(tensor.dtype));
    for (std::int64_t number = from / kBlockBytes; number * kBlockBytes < end; ++number) {
      const std::int64_t begin = number * kBlockBytes;
      const std::int64_t size = std::min(kBlockBytes, bytes - begin);
      file.read_at(piece.offset + begin, block_.data(), static_cast<std::size_t>(size));
      if (xxh64(block_.data(), static_cast<std::size_t>(size)) != piece.hashes[static_cast<std::size_t>(number)]) {
        throw Error(ErrorCode::io, file.path() + ": " + quoted_name(tensor.name) + " is damaged: a byte from " +
                                       std::to_string(piece.offset + begin) + " to " +
                                       std::to_string(piece.offset + begin + size - 1) + " is not what was written");
      }
      const std::int64_t first = std::max(from, begin);
      const std::int64_t last = std::min(end, begin + size);
      std::memcpy(to + (first - from), block_.data() + (first - begin), static_cast<std::size_t>(last - first));
    }
  }

  /// The file, whose size and header were checked.
  const Descriptor& opened(std::size_t number) {
    Descriptor& file = files_[number];
    if (file.fd() >= 0) return file;
    const IndexedFile& listed = index_->files[number];
    Descriptor fresh(path_ + '/' + listed.name, O_RDONLY);
    if (fresh.size() != listed.bytes) {
      throw Error(ErrorCode::io, fresh.path() + ": has " + std::to_string(fresh.size()) + " bytes; the index says " +
                                     std::to_string(listed.bytes));
    }
    if (listed.header_bytes > std::min(listed.bytes, kLargestHeader)) {
      throw Error(ErrorCode::io, fresh.path() + ": the index says that its header is longer than it can be");
    }
    std::string header(static_cast<std::size_t>(listed.header_bytes), '\0');
    fresh.read_at(0, header.data(), header.size());
    if (xxh64(header.data(), header.size()) != listed.header_hash) {
      throw Error(ErrorCode::io, fresh.path() + ": its header is damaged: a byte from 0 to " +
                                     std::to_string(listed.header_bytes - 1) + " is not what was written");
    }
    file = std::move(fresh);
    return file;
  }

  std::string path_;
  const Index* index_;
  std::vector<Descriptor> files_;
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

std::vector<Bytes> read_all(const std::string& path, const Index& index, const CheckpointEntries& entries,
                            const std::vector<const IndexedTensor*>& tensors) {
  PartReader reader(path, index);
  std::vector<Bytes> contents;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TensorView& view = entries[i].view;
    Bytes& content = contents.emplace_back(new std::byte[static_cast<std::size_t>(view.bytes())]);
    reader.read(*tensors[i], entries[i].first.value_or(0), view.elements(), content.get());
  }
  return contents;
}

/// Throws `Error` (io) with the path.
Index read_index(const std::string& path, std::string& text) {
  const std::string file = path + '/' + kIndexName;
  text = read_file(file, kLargestIndex);
  try {
    Index index = decode(text);
    check_whole(index, ErrorCode::io);
    return index;
  } catch (const Error& error) {
    throw Error(error.code(), file + ": " + error.status().message());
  }
}

}  // namespace
}  // namespace checkpoint

void detail::load_checkpoint(const Group& group, const std::string& path, const CheckpointEntries& entries,
                             std::chrono::nanoseconds timeout) {
  const checkpoint::Ranks ranks(group, "load_checkpoint", timeout);
  checkpoint::Index index;
  std::string text;
  ranks.all([&] {
    checkpoint::check_entries(entries);
    index = checkpoint::read_index(path, text);
  });
  ranks.compare({"index " + std::to_string(checkpoint::xxh64(text.data(), text.size()))});
  std::vector<const checkpoint::IndexedTensor*> tensors;
  ranks.all([&] {
    checkpoint::Found found;
    for (const checkpoint::IndexedTensor& tensor : index.tensors) found.emplace(tensor.name, &tensor);
    tensors = checkpoint::matched(path, entries, found);
  });
  checkpoint::check_none_is_left(ranks, path, index, entries);
  std::vector<checkpoint::Bytes> contents;
  ranks.all([&] { contents = checkpoint::read_all(path, index, entries, tensors); });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TensorView& view = entries[i].view;
    if (view.elements() > 0) std::memcpy(view.data(), contents[i].get(), static_cast<std::size_t>(view.bytes()));
  }
}

}  // namespace kolo
