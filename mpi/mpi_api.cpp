// SPDX-License-Identifier: Apache-2.0
#include "mpi/mpi_api.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/cpu.hpp"

namespace kolo::mpi::KOLO_MPI_NAMESPACE {
namespace {

void check(int code, const std::string& call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  const std::string said(text, static_cast<std::size_t>(length));
  throw Error(ErrorCode::transport, call + " failed: " + (said.empty() ? "MPI error " + std::to_string(code) : said));
}

bool is_complete(MPI_Request& request, const char* call) {
  int flag = 0;
  check(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), call);
  return flag != 0;
}

/// The first so many fruitless looks are each followed by a yield, later ones by a nap that grows: MPI has nothing to
/// sleep on.
constexpr int kYields = 1000;
constexpr std::chrono::microseconds kShortestNap{50};
constexpr std::chrono::milliseconds kLongestNap{1};

}  // namespace

bool poll_until(base::Time until, const std::function<bool()>& done) {
  base::Backoff naps(kShortestNap, kLongestNap);
  for (int looks = 0; !done(); ++looks) {
    if (base::now() >= until) return false;
    if (looks < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(naps.next());
    }
  }
  return true;
}

bool is_initialized() {
  int flag = 0;
  check(MPI_Initialized(&flag), "MPI_Initialized");
  return flag != 0;
}

bool is_finalized() {
  int flag = 0;
  check(MPI_Finalized(&flag), "MPI_Finalized");
  return flag != 0;
}

ThreadLevel thread_level() {
  constexpr std::array<int, 4> kLevels{MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                       MPI_THREAD_MULTIPLE};
  int level = 0;
  check(MPI_Query_thread(&level), "MPI_Query_thread");
  const auto* const found = std::find(kLevels.begin(), kLevels.end(), level);
  if (found != kLevels.end()) return static_cast<ThreadLevel>(found - kLevels.begin());
  throw Error(ErrorCode::transport, "MPI reports an unknown thread level, " + std::to_string(level));
}

bool is_main_thread() {
  int flag = 0;
  check(MPI_Is_thread_main(&flag), "MPI_Is_thread_main");
  return flag != 0;
}

void initialize() {
  int provided = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
}

void finalize() { check(MPI_Finalize(), "MPI_Finalize"); }

void meet_world(base::Time until) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
  poll_until(until, [&] { return is_complete(request, "MPI_Ibarrier"); });
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = {};
  int length = 0;
  check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  std::string version(text, static_cast<std::size_t>(length));
  version.resize(std::min(version.find_first_of(",\n"), version.size()));
  // MPICH's text is a table.
  std::replace(version.begin(), version.end(), '\t', ' ');
  const auto both_blank = [](char a, char b) { return a == ' ' && b == ' '; };
  version.erase(std::unique(version.begin(), version.end(), both_blank), version.end());
  return version;
}

bool is_intercommunicator(MPI_Comm communicator) {
  int flag = 0;
  check(MPI_Comm_test_inter(communicator, &flag), "MPI_Comm_test_inter");
  return flag != 0;
}

Communicator::Communicator(MPI_Comm raw) : raw_(raw) {
  // Done first: a communicator inherits its error handler, which by default ends the job.
  check(MPI_Comm_set_errhandler(raw_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(raw_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(raw_, &size_), "MPI_Comm_size");
}

Communicator Communicator::duplicate(MPI_Comm original, base::Duration patience) {
  const base::Time until = base::now() + patience;
  auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(original, copy.get(), &request), "MPI_Comm_idup");
  if (!poll_until(until, [&] { return is_complete(request, "MPI_Comm_idup"); })) {
    static_cast<void>(copy.release());  // MPI may still write there
    throw Error(ErrorCode::transport, "MPI_Comm_idup did not complete in time: a rank does not answer. MPI cannot be "
                                      "finalised.");
  }
  return Communicator(*copy);
}

Communicator::Communicator(Communicator&& other) noexcept
    : raw_(std::exchange(other.raw_, MPI_COMM_NULL)), rank_(other.rank_), size_(other.size_) {}

Communicator::~Communicator() {
  if (raw_ == MPI_COMM_NULL) return;
  try {
    if (is_finalized()) return;
    if (thread_level() < ThreadLevel::serialized && !is_main_thread()) return;
    MPI_Comm_free(&raw_);  // if it fails, nothing can be done
  } catch (const Error&) {
    // MPI cannot even say whether it is alive, so nothing is freed.
  }
}

void Communicator::abandon() noexcept { raw_ = MPI_COMM_NULL; }

int Communicator::tag_limit() const {
  int* limit = nullptr;
  int flag = 0;
  check(MPI_Comm_get_attr(raw_, MPI_TAG_UB, static_cast<void*>(&limit), &flag), "MPI_Comm_get_attr");
  constexpr int kLeastByTheStandard = 32767;
  return flag != 0 ? *limit : kLeastByTheStandard;
}

MPI_Request Communicator::send(int rank, int tag, const std::byte* data, int bytes) const {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(data, bytes, MPI_BYTE, rank, tag, raw_, &request);
  if (code != MPI_SUCCESS) check(code, "MPI_Isend to rank " + std::to_string(rank));
  return request;
}

MPI_Request Communicator::receive(int rank, int tag, std::byte* data, int bytes) const {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(data, bytes, MPI_BYTE, rank, tag, raw_, &request);
  if (code != MPI_SUCCESS) {
    check(code, "MPI_Irecv from " + (rank == MPI_ANY_SOURCE ? "any rank" : "rank " + std::to_string(rank)));
  }
  return request;
}

std::optional<Origin> test_receive(MPI_Request& request) {
  int flag = 0;
  MPI_Status status;
  check(MPI_Test(&request, &flag, &status), "MPI_Test");
  if (flag == 0) return std::nullopt;
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  return Origin{status.MPI_SOURCE, static_cast<std::size_t>(bytes)};
}

bool cancel_receive(MPI_Request& request) noexcept {
  if (MPI_Cancel(&request) != MPI_SUCCESS) return false;
  // A receive that a message has met is not cancelled. If the sender died amid the message, it never ends.
  constexpr std::chrono::seconds kPatience{1};
  const base::Time until = base::now() + kPatience;
  int is_over = 0;
  do {
    if (MPI_Test(&request, &is_over, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
  } while (is_over == 0 && base::now() < until);
  return is_over != 0;
}

void Communicator::progress() const {
  int flag = 0;
  check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, raw_, &flag, MPI_STATUS_IGNORE), "MPI_Iprobe");
}

RollCall::RollCall(MPI_Comm theirs) : theirs_(theirs) {
  int size = 0;
  check(MPI_Comm_rank(theirs_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(theirs_, &size), "MPI_Comm_size");
  here_.resize(static_cast<std::size_t>(size));
  told_.resize(here_.size());
  check(MPI_Igather(&present_, 1, MPI_CHAR, here_.data(), 1, MPI_CHAR, 0, theirs_, &gather_), "MPI_Igather");
  if (rank_ != 0) scatter();
}

bool RollCall::gathered() { return is_complete(gather_, "MPI_Igather"); }

void RollCall::answer() {
  here_[0] = present_;
  for (std::size_t rank = 0; rank < here_.size(); ++rank) answer_.insert(answer_.end(), here_.begin(), here_.end());
  scatter();
}

void RollCall::scatter() {
  const auto size = static_cast<int>(told_.size());
  check(MPI_Iscatter(answer_.data(), size, MPI_CHAR, told_.data(), size, MPI_CHAR, 0, theirs_, &scatter_),
        "MPI_Iscatter");
}

bool RollCall::answered() { return is_complete(scatter_, "MPI_Iscatter"); }

std::vector<char> RollCall::here() const { return rank_ == 0 ? here_ : told_; }

void Requests::add(MPI_Request request, Note note) {
  requests_.push_back(request);
  notes_.push_back(note);
}

const std::vector<Requests::Completed>& Requests::test() {
  completed_.clear();
  if (requests_.empty()) return completed_;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (int i = 0; i < count; ++i) {
      const int one = statuses_[static_cast<std::size_t>(i)].MPI_ERROR;
      if (one != MPI_ERR_PENDING) check(one, "MPI_Testsome");
    }
  }
  check(code, "MPI_Testsome");
  for (int i = 0; i < count; ++i) {  // `count` may be MPI_UNDEFINED, which is negative
    // MPI_Get_elements_x has no upper limit, and gives the same number for bytes.
    MPI_Count bytes = 0;
    check(MPI_Get_elements_x(&statuses_[static_cast<std::size_t>(i)], MPI_BYTE, &bytes), "MPI_Get_elements_x");
    const auto index = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
    completed_.push_back({notes_[index], bytes > 0 ? static_cast<std::size_t>(bytes) : 0});
  }
  if (completed_.empty()) return completed_;
  std::size_t left = 0;  // completed ones have become null
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[left] = requests_[i];
    notes_[left++] = notes_[i];
  }
  requests_.resize(left);
  notes_.resize(left);
  return completed_;
}

}  // namespace kolo::mpi::KOLO_MPI_NAMESPACE
