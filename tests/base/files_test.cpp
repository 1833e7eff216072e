// SPDX-License-Identifier: Apache-2.0
// The three ways of opening files, beside everything that is no file.
#include "base/files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <kolo/error.hpp>

namespace kolo::base {
namespace {

namespace fs = std::filesystem;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string text_of(const std::optional<std::vector<std::byte>>& bytes) {
  return bytes ? std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()) : "(nothing)";
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.status().message();
  }
  return "no error";
}

/// A folder with one of each: a file, links to it and to nothing, a folder, a FIFO, a socket. /dev/full is the device.
class Files : public ::testing::Test {
 protected:
  Files() {
    std::string name = fs::temp_directory_path() / "kolo-files-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    write("file", "content");
    fs::create_symlink("file", at("link"));
    fs::create_symlink("nowhere", at("dangling"));
    fs::create_directory(at("folder"));
    EXPECT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
    socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, at("socket").c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Files() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(at(name), std::ios::binary) << content;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }

  std::string folder_;
  UniqueFd socket_;
};

TEST_F(Files, FoundIsACopyOfAnOwnRegularFileAndNothingElse) {
  EXPECT_EQ(text_of(read_found(at("file"), 7)), "content");
  EXPECT_EQ(text_of(read_found(at("file"), 6)), "conten");
  EXPECT_EQ(text_of(read_found(at("file"), 7, ::geteuid() + 1)), "(nothing)");
  for (const char* other : {"link", "dangling", "folder", "fifo", "socket", "missing"})
    EXPECT_EQ(text_of(read_found(at(other), 100)), "(nothing)") << other;
  EXPECT_EQ(text_of(read_found("/dev/zero", 100)), "(nothing)");
  write("empty", "");
  EXPECT_EQ(text_of(read_found(at("empty"), 0)), "");
  EXPECT_EQ(text_of(read_found(at("file"), 100)), "content");
}

TEST_F(Files, NamedToReadMayBeALinkAndIsARegularFile) {
  EXPECT_EQ(read_named(at("file"), 7), "content");
  EXPECT_EQ(read_named(at("link"), 7), "content");
  EXPECT_EQ(open_named(at("link")).bytes, 7);
  EXPECT_EQ(error_of([&] { static_cast<void>(read_named(at("file"), 6)); }),
            "io: " + at("file") + ": has 7 bytes; at most 6 are expected");
  EXPECT_EQ(error_of([&] { static_cast<void>(open_named(at("missing"))); }),
            "io: " + at("missing") + ": open: No such file or directory");
  EXPECT_EQ(error_of([&] { static_cast<void>(open_named(at("fifo"))); }),
            "io: " + at("fifo") + ": is a FIFO, no regular file");
  EXPECT_EQ(error_of([&] { static_cast<void>(open_named(at("folder"))); }),
            "io: " + at("folder") + ": is a folder, no regular file");
  EXPECT_EQ(error_of([&] { static_cast<void>(open_named("/dev/zero")); }),
            "io: /dev/zero: is a device, no regular file");
  EXPECT_EQ(error_of([&] { static_cast<void>(open_named(at("a\nb"))); }),
            "io: " + at("a\\nb") + ": open: No such file or directory");
}

TEST_F(Files, NamedToReadMayNotBeThereYet) {
  EXPECT_EQ(find_named(at("missing")).has_value(), false);
  EXPECT_EQ(find_named(at("dangling")).has_value(), false);
  ASSERT_TRUE(find_named(at("link")));
  EXPECT_EQ(find_named(at("link"))->bytes, 7);
  EXPECT_EQ(error_of([&] { static_cast<void>(find_named(at("fifo"))); }),
            "io: " + at("fifo") + ": is a FIFO, no regular file");
}

TEST_F(Files, MemoryIsTakenForNoFileThatIsTooLong) {
  const UniqueFd sparse = create_file(at("sparse"));
  ASSERT_EQ(::ftruncate(sparse.get(), off_t{1} << 40U), 0);
  EXPECT_EQ(read_found(at("sparse"), 1000).value().size(), 1000U);
  EXPECT_EQ(error_of([&] { static_cast<void>(read_named(at("sparse"), 1000)); }),
            "io: " + at("sparse") + ": has 1099511627776 bytes; at most 1000 are expected");
}

TEST_F(Files, NamedToWriteIsNewOrARegularFile) {
  EXPECT_EQ(write_all(open_to_write(at("new"), Start::append).get(), "one "), 0);
  EXPECT_EQ(write_all(open_to_write(at("new"), Start::append).get(), "two"), 0);
  EXPECT_EQ(content_of(at("new")), "one two");
  EXPECT_EQ(write_all(open_to_write(at("new"), Start::empty).get(), "three"), 0);
  EXPECT_EQ(content_of(at("new")), "three");
  EXPECT_EQ(write_all(create_file(at("newer")).get(), "four"), 0);
  EXPECT_EQ(content_of(at("newer")), "four");
}

TEST_F(Files, NothingElseIsWrittenOrReplaced) {
  const std::vector<std::pair<std::string, std::string>> others{
      {at("link"), "a symbolic link"}, {at("dangling"), "a symbolic link"}, {at("folder"), "a folder"},
      {at("fifo"), "a FIFO"},          {at("socket"), "a socket"},          {"/dev/full", "a device"}};
  const std::vector<std::string> before = names();
  for (const auto& [path, kind] : others) {
    std::string why = "io: ";
    why.append(path).append(": is ").append(kind).append(", no regular file");
    EXPECT_EQ(error_of([&path = path] { static_cast<void>(open_to_write(path, Start::empty)); }), why);
    EXPECT_EQ(error_of([&path = path] { replace_file(path, "x"); }), why);
    EXPECT_EQ(error_of([&path = path] { static_cast<void>(create_file(path)); }),
              "io: " + path + ": open: File exists");
  }
  EXPECT_EQ(names(), before);
  EXPECT_EQ(content_of(at("file")), "content");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

// A program that writes to a FIFO whose reader goes is ended by SIGPIPE; one that waits for a reader hangs.
TEST_F(Files, AFifoIsRefusedWithAReaderAndWithout) {
  const UniqueFd reader(::open(at("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  EXPECT_EQ(error_of([&] { static_cast<void>(open_to_write(at("fifo"), Start::append)); }),
            "io: " + at("fifo") + ": is a FIFO, no regular file");
}

TEST_F(Files, ReplacingLeavesTheOldContentOrTheNewAndNothingBeside) {
  replace_file(at("file"), "second");
  EXPECT_EQ(content_of(at("file")), "second");
  EXPECT_EQ(content_of(at("link")), "second");
  replace_file(at("made"), "first", 0600);
  EXPECT_EQ(content_of(at("made")), "first");
  EXPECT_EQ(fs::status(at("made")).permissions(), fs::perms(0600));
  EXPECT_EQ(names(), (std::vector<std::string>{"dangling", "fifo", "file", "folder", "link", "made", "socket"}));
  EXPECT_EQ(error_of([&] { replace_file(at("nowhere/file"), "x"); }).substr(0, 4), "io: ");
}

TEST_F(Files, AReplacementInPiecesIsThereOnceItIsCommitted) {
  const std::vector<std::string> before = names();
  {
    Replacement dropped(at("file"));
    dropped.write("half");
    EXPECT_EQ(content_of(at("file")), "content");
  }
  EXPECT_EQ(names(), before);
  Replacement kept(at("file"));
  kept.write("in ");
  kept.write("pieces");
  kept.commit(Replacement::Lasts::yes);
  EXPECT_EQ(content_of(at("file")), "in pieces");
  EXPECT_EQ(names(), before);
  EXPECT_EQ(error_of([&] { sync_folder(at("file")); }), "io: " + at("file") + ": open: Not a directory");
}

// A link that somebody has put there before would have its target overwritten.
TEST_F(Files, ALinkUnderTheNameOfTheNewFileIsLeftAlone) {
  const std::string beside = at("file") + "." + std::to_string(::getpid()) + ".0.new";
  write("victim", "mine");
  fs::create_symlink("victim", beside);
  replace_file(at("file"), "second");
  EXPECT_EQ(content_of(at("file")), "second");
  EXPECT_EQ(content_of(at("victim")), "mine");
  EXPECT_TRUE(fs::is_symlink(beside));
}

TEST_F(Files, TheLimitOfAFilesSizeIsAnErrorAndNoSignal) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{1000, 1000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    const UniqueFd file = create_file(at("limited"));
    if (write_all(file.get(), std::string(1000, 'x')) != 0) ::_exit(2);
    std::size_t written = 1;
    if (write_all(file.get(), "y", &written) != EFBIG || written != 0) ::_exit(3);
    if (reserve(file.get(), 1001) != EFBIG) ::_exit(3);
    sigset_t mask;
    if (::pthread_sigmask(SIG_SETMASK, nullptr, &mask) != 0 || ::sigismember(&mask, SIGXFSZ) != 0) ::_exit(4);
    try {
      replace_file(at("file"), std::string(2000, 'z'));
      ::_exit(5);
    } catch (const Error&) {
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(content_of(at("file")), "content");
}

}  // namespace
}  // namespace kolo::base
