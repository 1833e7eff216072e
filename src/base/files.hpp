// SPDX-License-Identifier: Apache-2.0
//
// The three ways in which Kolo opens files, and no other:
//
//   found            what Kolo looks for where others may have put something else, as recorders in a shared folder: a
//                    private copy of a regular file of the right owner, no link, at most so long.
//   named, to read   what the user names, as checkpoints, configurations, lists of hosts and keys: any owner's, also
//                    through links, but a regular file, whose size is known before memory is taken for it.
//   named, to write  what the user names, as timelines, metrics and flight records: a new file, or a regular one that
//                    is there. Never a device, and never through a link.
//
// None of them waits: a FIFO without a peer is refused like any other thing that is no regular file. (What lies under
// /proc and /sys is read by those who know it.) Errors are `Error` (io): "<path>: <what is wrong>", with the path
// escaped. All functions may be called from any thread.
//
// It needs nothing of `base` but check.cpp, quote.cpp and unique_fd.cpp: libraries beside libkolo compile these four,
// too.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"

namespace kolo::base {

/// A copy of a file that was found, or of its first `most` bytes. Nothing where there is none, where it is no regular
/// file, belongs to another user than `owner`, or cannot be read. A file that is cut off while it is read gives what
/// was there. The bytes are aligned as `operator new` aligns.
[[nodiscard]] std::optional<std::vector<std::byte>> read_found(const std::string& path, std::size_t most,
                                                               uid_t owner = ::geteuid());

/// A file that the user has named, open to be read.
struct NamedFile {
  UniqueFd fd;
  std::int64_t bytes = 0;  ///< when it was opened
};
/// Throws Error (io): there is none, or it is no regular file.
[[nodiscard]] NamedFile open_named(const std::string& path);
/// The same where the file may not be there yet: nothing then.
[[nodiscard]] std::optional<NamedFile> find_named(const std::string& path);
/// All of it. Throws Error (io), also where it is longer than `limit` bytes or is cut off while it is read.
[[nodiscard]] std::string read_named(const std::string& path, std::size_t limit);

enum class Start { empty, append };
/// A file that the user has named, open to be written: made with mode 0666 less the umask, or one that is there, which
/// is emptied (`empty`) or goes on (`append`). Writes go to its end. Throws Error (io).
[[nodiscard]] UniqueFd open_to_write(const std::string& path, Start start);
/// A new file, open to be read, too, as a mapping needs it. Throws Error (io), also where something has that name, be
/// it a link that leads nowhere.
[[nodiscard]] UniqueFd create_file(const std::string& path, mode_t mode = 0666);
/// New content for a file. Other processes see the old content or the new one. It is written under a name of its own
/// beside `path` (`<path>.<process>.<number>.new`), which is gone if this ends without `commit`. All throw Error (io).
class Replacement {
 public:
  explicit Replacement(const std::string& path, mode_t mode = 0666);
  ~Replacement();
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  void write(std::string_view content);
  /// Waits until what was written, and then its new name, are on the disk; else a loss of power may leave the old.
  enum class Lasts { no, yes };
  void commit(Lasts lasts = Lasts::no);

 private:
  std::string path_, beside_;
  UniqueFd file_;
};
/// A `Replacement` of this content, committed.
void replace_file(const std::string& path, std::string_view content, mode_t mode = 0666);
/// Waits until what was made, renamed and removed in the folder is on the disk. Throws Error (io).
void sync_folder(const std::string& path);

/// Writes all of it. 0, or the error's number; then some of it may be written. Where the file would become longer than
/// the process's limit (ulimit -f), the error is EFBIG, and no SIGXFSZ ends the process. `written`, if given, gets the
/// number of bytes that were.
[[nodiscard]] int write_all(int fd, std::string_view content, std::size_t* written = nullptr) noexcept;
/// Makes the file so long, and takes the space for it on its disk. 0, or the error's number, EFBIG likewise.
[[nodiscard]] int reserve(int fd, std::size_t bytes) noexcept;

}  // namespace kolo::base
