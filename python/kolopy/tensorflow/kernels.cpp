// SPDX-License-Identifier: Apache-2.0
//
// TensorFlow's operations over Kolo's C API. `_build.py` compiles this file for the TensorFlow that is installed.
//
// A kernel starts Kolo's operation and returns. When the operation is done, Kolo calls back, and TensorFlow goes on.
// A result whose size is not known before (allgather, alltoall, join) is fetched on one of TensorFlow's worker threads,
// because a callback of Kolo's must be short and must not wait.
#include <kolo/kolo.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <locale>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/mutex.h"

namespace kolo_tensorflow {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// --- errors

absl::StatusCode code_of(kolo_status status) {
  switch (status) {
  case KOLO_OK:
    return absl::StatusCode::kOk;
  case KOLO_INVALID_ARGUMENT:
  case KOLO_MISMATCH:
  case KOLO_INVALID_SETTING:
    return absl::StatusCode::kInvalidArgument;
  case KOLO_DUPLICATE_NAME:
    return absl::StatusCode::kAlreadyExists;
  case KOLO_UNSUPPORTED:
    return absl::StatusCode::kUnimplemented;
  case KOLO_NOT_INITIALIZED:
    return absl::StatusCode::kFailedPrecondition;
  case KOLO_TIMEOUT:
  case KOLO_EXPIRED:
    return absl::StatusCode::kDeadlineExceeded;
  case KOLO_RANK_LOST:
  case KOLO_TRANSPORT:
    return absl::StatusCode::kUnavailable;
  case KOLO_OUT_OF_MEMORY:
    return absl::StatusCode::kResourceExhausted;
  case KOLO_SHUT_DOWN:  // not kCancelled: TensorFlow takes that for a consequence of another error, and drops it
  case KOLO_USER_EXCEPTION:
  case KOLO_CANCELLED:
    return absl::StatusCode::kAborted;
  default:
    return absl::StatusCode::kInternal;
  }
}

absl::Status error(kolo_status status, const char* sentence) { return absl::Status(code_of(status), sentence); }

/// The outcome of a function of Kolo's that this thread has just called.
absl::Status checked(kolo_status status) {
  return status == KOLO_OK ? absl::OkStatus() : error(status, kolo_last_error());
}

// --- groups, by the numbers of process sets

class Groups {
 public:
  void set(std::int32_t number, kolo_group* group) {
    const tensorflow::mutex_lock lock(mutex_);
    if (group == nullptr) {
      groups_.erase(number);
    } else {
      groups_[number] = group;
    }
  }
  absl::Status find(std::int32_t number, kolo_group** group) {
    const tensorflow::mutex_lock lock(mutex_);
    const auto found = groups_.find(number);
    if (found == groups_.end()) {
      return absl::FailedPreconditionError(number == 0 ? "Kolo is not initialized: call hvd.init() first"
                                                       : "this rank is not in the process set, or the set was removed");
    }
    *group = found->second;
    return absl::OkStatus();
  }

 private:
  tensorflow::mutex mutex_;
  std::unordered_map<std::int32_t, kolo_group*> groups_;
};

Groups& groups() {
  static Groups* const all = new Groups;  // operations may outlive static objects
  return *all;
}

// --- tensors

int dtype_of(tensorflow::DataType type) {
  switch (type) {
  case tensorflow::DT_BOOL:
    return KOLO_BOOL;
  case tensorflow::DT_INT8:
    return KOLO_INT8;
  case tensorflow::DT_INT16:
    return KOLO_INT16;
  case tensorflow::DT_INT32:
    return KOLO_INT32;
  case tensorflow::DT_INT64:
    return KOLO_INT64;
  case tensorflow::DT_UINT8:
    return KOLO_UINT8;
  case tensorflow::DT_UINT16:
    return KOLO_UINT16;
  case tensorflow::DT_UINT32:
    return KOLO_UINT32;
  case tensorflow::DT_UINT64:
    return KOLO_UINT64;
  case tensorflow::DT_HALF:
    return KOLO_FLOAT16;
  case tensorflow::DT_BFLOAT16:
    return KOLO_BFLOAT16;
  case tensorflow::DT_FLOAT:
    return KOLO_FLOAT32;
  case tensorflow::DT_DOUBLE:
    return KOLO_FLOAT64;
  default:
    return -1;
  }
}

absl::Status describe(const Tensor& tensor, kolo_tensor* out) {
  if (tensor.dims() > KOLO_MAX_DIMS) {
    return absl::InvalidArgumentError("the tensor has " + std::to_string(tensor.dims()) +
                                      " dimensions: Kolo takes 0 to " + std::to_string(KOLO_MAX_DIMS) +
                                      ", so reshape it");
  }
  *out = kolo_tensor{};
  out->data = const_cast<char*>(tensor.tensor_data().data());
  out->dtype = dtype_of(tensor.dtype());
  out->dims = tensor.dims();
  for (int i = 0; i < tensor.dims(); ++i) out->shape[i] = tensor.dim_size(i);
  out->device = KOLO_CPU;
  return absl::OkStatus();
}

/// The shape with another first dimension.
absl::Status with_rows(const Tensor& tensor, std::int64_t rows, TensorShape* shape) {
  if (tensor.dims() == 0) {
    return absl::InvalidArgumentError("the tensor is a scalar, which has no rows: give it a first dimension");
  }
  *shape = tensor.shape();
  shape->set_dim(0, rows);
  return absl::OkStatus();
}

// --- operations under way

/// One whose outputs are written when Kolo calls back.
struct Started {
  OpKernelContext* context;
  AsyncOpKernel::DoneCallback done;
};

void finish(void* data, kolo_status status, const char* sentence) {
  const std::unique_ptr<Started> started(static_cast<Started*>(data));
  if (status != KOLO_OK) started->context->SetStatus(error(status, sentence));
  started->done();  // schedules what comes next on TensorFlow's threads
}

/// `start` gets the place for a handle.
template <class Start>
void run(OpKernelContext* context, AsyncOpKernel::DoneCallback done, Start start) {
  kolo_handle* handle = nullptr;
  OP_REQUIRES_OK_ASYNC(context, checked(start(&handle)), done);
  auto* const started = new Started{context, std::move(done)};
  if (kolo_on_done(handle, &finish, started) != KOLO_OK) {  // no memory: wait here
    const kolo_status status = kolo_wait(handle, -1.0);
    finish(started, status, kolo_last_error());
    return;
  }
  kolo_release(handle);
}

/// One whose outputs `kolo_wait` writes.
struct Fetched {
  OpKernelContext* context;
  AsyncOpKernel::DoneCallback done;
  absl::Status (*take)(Fetched&);
  kolo_handle* handle = nullptr;
  kolo_result* result = nullptr;
  std::int32_t last = -1;
  std::atomic<int> users{2};  // of the handle: the call of kolo_on_done, and the callback

  ~Fetched() { kolo_result_release(result); }
};

void fetch(Fetched* data) {
  const std::unique_ptr<Fetched> fetched(data);
  absl::Status status = checked(kolo_wait(fetched->handle, -1.0));
  if (status.ok()) status = fetched->take(*fetched);
  if (!status.ok()) fetched->context->SetStatus(status);
  const auto done = std::move(fetched->done);
  done();
}

/// `kolo_wait` frees the handle, so the last user calls it.
void drop(Fetched* fetched) {
  if (fetched->users.fetch_sub(1) != 1) return;
  fetched->context->device()->tensorflow_cpu_worker_threads()->workers->Schedule([fetched] { fetch(fetched); });
}

template <class Start>
void run_and_fetch(OpKernelContext* context, AsyncOpKernel::DoneCallback done, absl::Status (*take)(Fetched&),
                   Start start) {
  auto fetched = std::make_unique<Fetched>();
  fetched->context = context;
  fetched->take = take;
  OP_REQUIRES_OK_ASYNC(context, checked(start(*fetched)), done);
  fetched->done = std::move(done);
  Fetched* const shared = fetched.release();
  const auto call = [](void* data, kolo_status, const char*) { drop(static_cast<Fetched*>(data)); };
  if (kolo_on_done(shared->handle, call, shared) != KOLO_OK) drop(shared);  // no memory: fetch() waits
  drop(shared);
}

absl::Status take_rows(Fetched& fetched) {
  kolo_tensor rows;
  if (const auto status = checked(kolo_result_tensor(fetched.result, &rows)); !status.ok()) return status;
  TensorShape shape;
  for (int i = 0; i < rows.dims; ++i) shape.AddDim(rows.shape[i]);
  Tensor* output = nullptr;
  if (const auto status = fetched.context->allocate_output(0, shape, &output); !status.ok()) return status;
  if (output->TotalBytes() > 0) {
    std::memcpy(const_cast<char*>(output->tensor_data().data()), rows.data, output->TotalBytes());
  }
  return absl::OkStatus();
}

absl::Status take_rows_and_splits(Fetched& fetched) {
  if (const auto status = take_rows(fetched); !status.ok()) return status;
  const std::int64_t* splits = nullptr;
  std::size_t count = 0;
  if (const auto status = checked(kolo_result_splits(fetched.result, &splits, &count)); !status.ok()) return status;
  Tensor* output = nullptr;
  const TensorShape shape({static_cast<std::int64_t>(count)});
  if (const auto status = fetched.context->allocate_output(1, shape, &output); !status.ok()) return status;
  for (std::size_t i = 0; i < count; ++i) output->vec<std::int32_t>()(i) = static_cast<std::int32_t>(splits[i]);
  return absl::OkStatus();
}

absl::Status take_last(Fetched& fetched) {
  Tensor* output = nullptr;
  if (const auto status = fetched.context->allocate_output(0, TensorShape({}), &output); !status.ok()) return status;
  output->scalar<std::int32_t>()() = fetched.last;
  return absl::OkStatus();
}

// --- kernels

class Kernel : public AsyncOpKernel {
 public:
  explicit Kernel(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &key_));
    OP_REQUIRES_OK(context, context->GetAttr("process_set", &process_set_));
  }

 protected:
  /// The name that Kolo matches ranks by; NULL for the order of calls.
  [[nodiscard]] const char* key() const { return key_.empty() ? nullptr : key_.c_str(); }
  absl::Status find(kolo_group** group) const { return groups().find(process_set_, group); }

 private:
  std::string key_;
  std::int32_t process_set_ = 0;
};

/// In any locale of the program's.
bool read(const std::string& text, double* number) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  return static_cast<bool>(stream >> *number);
}

class ReducingKernel : public Kernel {
 public:
  explicit ReducingKernel(OpKernelConstruction* context) : Kernel(context) {
    std::string prescale, postscale;  // TensorFlow has no attributes of 64 bits
    OP_REQUIRES_OK(context, context->GetAttr("reduce_op", &options_.op));
    OP_REQUIRES_OK(context, context->GetAttr("send_as", &options_.send_as));
    OP_REQUIRES_OK(context, context->GetAttr("prescale", &prescale));
    OP_REQUIRES_OK(context, context->GetAttr("postscale", &postscale));
    OP_REQUIRES(
        context, read(prescale, &options_.prescale) && read(postscale, &options_.postscale),
        absl::InvalidArgumentError("a scale is no number: prescale is " + prescale + ", postscale " + postscale));
  }

 protected:
  kolo_allreduce_options options_ = KOLO_ALLREDUCE_OPTIONS_INIT;
};

class Allreduce : public ReducingKernel {
 public:
  using ReducingKernel::ReducingKernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    Tensor* output = nullptr;
    kolo_tensor in, out;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    OP_REQUIRES_OK_ASYNC(context, context->forward_input_or_allocate_output({0}, 0, context->input(0).shape(), &output),
                         done);
    OP_REQUIRES_OK_ASYNC(context, describe(context->input(0), &in), done);
    OP_REQUIRES_OK_ASYNC(context, describe(*output, &out), done);
    run(context, std::move(done),
        [&](kolo_handle** handle) { return kolo_allreduce(group, key(), &in, &out, &options_, handle); });
  }
};

class Broadcast : public Kernel {
 public:
  explicit Broadcast(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("root_rank", &root_));
  }
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    Tensor* output = nullptr;
    kolo_tensor in, out;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    OP_REQUIRES_OK_ASYNC(context, context->forward_input_or_allocate_output({0}, 0, context->input(0).shape(), &output),
                         done);
    OP_REQUIRES_OK_ASYNC(context, describe(context->input(0), &in), done);
    OP_REQUIRES_OK_ASYNC(context, describe(*output, &out), done);
    run(context, std::move(done),
        [&](kolo_handle** handle) { return kolo_broadcast(group, key(), &in, &out, root_, nullptr, handle); });
  }

 private:
  std::int32_t root_ = 0;
};

/// How many of so many rows a reduce-scatter gives this rank.
absl::Status rows_of_reduce_scatter(const kolo_group* group, const Tensor& input, TensorShape* shape) {
  std::int32_t rank = 0, size = 1;
  if (const auto status = checked(kolo_rank(group, &rank)); !status.ok()) return status;
  if (const auto status = checked(kolo_size(group, &size)); !status.ok()) return status;
  const std::int64_t rows = input.dims() == 0 ? 0 : input.dim_size(0);
  return with_rows(input, rows / size + (rank < rows % size ? 1 : 0), shape);
}

class Reducescatter : public ReducingKernel {
 public:
  using ReducingKernel::ReducingKernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    TensorShape shape;
    Tensor* output = nullptr;
    kolo_tensor in, out;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    OP_REQUIRES_OK_ASYNC(context, rows_of_reduce_scatter(group, context->input(0), &shape), done);
    OP_REQUIRES_OK_ASYNC(context, context->allocate_output(0, shape, &output), done);
    OP_REQUIRES_OK_ASYNC(context, describe(context->input(0), &in), done);
    OP_REQUIRES_OK_ASYNC(context, describe(*output, &out), done);
    run(context, std::move(done),
        [&](kolo_handle** handle) { return kolo_reduce_scatter_into(group, key(), &in, &out, &options_, handle); });
  }
};

class Allgather : public Kernel {
 public:
  using Kernel::Kernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    kolo_tensor in;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    OP_REQUIRES_OK_ASYNC(context, describe(context->input(0), &in), done);
    run_and_fetch(context, std::move(done), &take_rows, [&](Fetched& fetched) {
      return kolo_allgather(group, key(), &in, nullptr, &fetched.result, &fetched.handle);
    });
  }
};

class Alltoall : public Kernel {
 public:
  using Kernel::Kernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    kolo_tensor in;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    OP_REQUIRES_OK_ASYNC(context, describe(context->input(0), &in), done);
    const Tensor& given = context->input(1);  // empty: the same number of rows to each rank
    OP_REQUIRES_ASYNC(context, given.dims() == 1,
                      absl::InvalidArgumentError("the splits are not a vector: give one number of rows for each rank"),
                      done);
    const std::size_t count = static_cast<std::size_t>(given.NumElements());
    const std::int64_t* const splits = count == 0 ? nullptr : given.vec<std::int64_t>().data();
    run_and_fetch(context, std::move(done), &take_rows_and_splits, [&](Fetched& fetched) {
      return kolo_alltoall(group, key(), &in, splits, count, nullptr, &fetched.result, &fetched.handle);
    });
  }
};

/// Reduces its inputs as one operation, in place: an input whose memory something else still needs is copied first.
class GroupedAllreduce : public ReducingKernel {
 public:
  using ReducingKernel::ReducingKernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    const int count = context->num_inputs();
    std::vector<std::string> names(count);
    std::vector<kolo_named_tensor> members(count);
    for (int i = 0; i < count; ++i) {
      const Tensor& input = context->input(i);
      Tensor* output = nullptr;
      OP_REQUIRES_OK_ASYNC(context, context->forward_input_or_allocate_output({i}, i, input.shape(), &output), done);
      if (!output->SharesBufferWith(input) && input.TotalBytes() > 0) {
        std::memcpy(const_cast<char*>(output->tensor_data().data()), input.tensor_data().data(), input.TotalBytes());
      }
      names[i] = std::to_string(i);
      members[i].name = names[i].c_str();
      OP_REQUIRES_OK_ASYNC(context, describe(*output, &members[i].tensor), done);
    }
    run(context, std::move(done), [&](kolo_handle** handle) {
      return kolo_grouped_allreduce(group, key(), members.data(), members.size(), &options_, handle);
    });
  }
};

/// The memory of several calls that are made as one.
struct Calls {
  explicit Calls(int count) : in(count), out(count), calls(count, kolo_call(KOLO_CALL_INIT)) {}
  std::vector<kolo_tensor> in, out;
  std::vector<kolo_call> calls;

  absl::Status add(int i, kolo_collective collective, const Tensor& input, const Tensor& output) {
    if (const auto status = describe(input, &in[i]); !status.ok()) return status;
    if (const auto status = describe(output, &out[i]); !status.ok()) return status;
    calls[i].collective = collective;
    calls[i].in = &in[i];
    calls[i].out = &out[i];
    return absl::OkStatus();
  }
};

class GroupedReducescatter : public ReducingKernel {
 public:
  using ReducingKernel::ReducingKernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    Calls calls(context->num_inputs());
    for (int i = 0; i < context->num_inputs(); ++i) {
      TensorShape shape;
      Tensor* output = nullptr;
      OP_REQUIRES_OK_ASYNC(context, rows_of_reduce_scatter(group, context->input(i), &shape), done);
      OP_REQUIRES_OK_ASYNC(context, context->allocate_output(i, shape, &output), done);
      OP_REQUIRES_OK_ASYNC(context, calls.add(i, KOLO_REDUCE_SCATTER, context->input(i), *output), done);
      calls.calls[i].reduction = &options_;
    }
    run(context, std::move(done), [&](kolo_handle** handle) {
      return kolo_grouped(group, key(), calls.calls.data(), calls.calls.size(), handle);
    });
  }
};

/// Its last input is the number of rows of each result.
class GroupedAllgather : public Kernel {
 public:
  using Kernel::Kernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    const int count = context->num_inputs() - 1;
    const Tensor& rows = context->input(count);
    OP_REQUIRES_ASYNC(context, rows.dims() == 1 && rows.NumElements() == count,
                      absl::InternalError("there is not one number of rows for each tensor"), done);
    Calls calls(count);
    for (int i = 0; i < count; ++i) {
      TensorShape shape;
      Tensor* output = nullptr;
      OP_REQUIRES_OK_ASYNC(context, with_rows(context->input(i), rows.vec<std::int64_t>()(i), &shape), done);
      OP_REQUIRES_OK_ASYNC(context, context->allocate_output(i, shape, &output), done);
      OP_REQUIRES_OK_ASYNC(context, calls.add(i, KOLO_ALLGATHER, context->input(i), *output), done);
    }
    run(context, std::move(done), [&](kolo_handle** handle) {
      return kolo_grouped(group, key(), calls.calls.data(), calls.calls.size(), handle);
    });
  }
};

class Barrier : public Kernel {
 public:
  using Kernel::Kernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    run(context, std::move(done), [&](kolo_handle** handle) { return kolo_barrier(group, key(), nullptr, handle); });
  }
};

class Join : public Kernel {
 public:
  using Kernel::Kernel;
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    kolo_group* group = nullptr;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    run_and_fetch(context, std::move(done), &take_last,
                  [&](Fetched& fetched) { return kolo_join(group, nullptr, &fetched.last, &fetched.handle); });
  }
};

/// Compares variables over the ranks where they lie, in some steps; its last input is the step.
class CheckReplicas : public Kernel {
 public:
  explicit CheckReplicas(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("names", &names_));
    OP_REQUIRES_OK(context, context->GetAttr("first", &first_));
    OP_REQUIRES_OK(context, context->GetAttr("every", &every_));
    OP_REQUIRES(context, names_.size() + 1 == static_cast<std::size_t>(context->num_inputs()),
                absl::InternalError("there is not one name for each variable"));
  }
  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const std::int64_t step = context->input(context->num_inputs() - 1).scalar<std::int64_t>()();
    if (step != first_ && (every_ <= 0 || step <= 0 || step % every_ != 0)) {
      done();
      return;
    }
    kolo_group* group = nullptr;
    OP_REQUIRES_OK_ASYNC(context, find(&group), done);
    // A tensor keeps its memory; nothing writes it meanwhile, because writing waits for this operation.
    std::vector<Tensor> values(names_.size());
    std::vector<kolo_named_tensor> named(names_.size());
    for (std::size_t i = 0; i < names_.size(); ++i) {
      tensorflow::core::RefCountPtr<tensorflow::Var> variable;
      OP_REQUIRES_OK_ASYNC(
          context,
          tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, static_cast<int>(i)), &variable),
          done);
      const tensorflow::tf_shared_lock lock(*variable->mu());
      values[i] = *variable->tensor();
      OP_REQUIRES_ASYNC(context, variable->is_initialized,
                        absl::FailedPreconditionError("the variable " + names_[i] + " has no value yet"), done);
      named[i].name = names_[i].c_str();
      OP_REQUIRES_OK_ASYNC(context, describe(values[i], &named[i].tensor), done);
    }
    // It waits for other ranks, so it takes none of TensorFlow's threads.
    tensorflow::Env::Default()->SchedClosure(
        [this, context, group, step, done = std::move(done), values = std::move(values), named = std::move(named)] {
          const absl::Status status = checked(kolo_check_replicas(group, key(), named.data(), named.size(), step));
          if (!status.ok()) context->SetStatus(status);
          done();
        });
  }

 private:
  std::vector<std::string> names_;
  std::int32_t first_ = -1;
  std::int32_t every_ = 0;
};

/// Stands where a device's kernel would be. Without it TensorFlow would copy tensors of a GPU back and forth silently.
class Refusal : public tensorflow::OpKernel {
 public:
  explicit Refusal(OpKernelConstruction* context) : OpKernel(context) {
    context->SetStatus(absl::UnimplementedError(
        "kolopy.tensorflow has kernels for the CPU only, and this operation was placed on a GPU: hide the GPUs by "
        "tf.config.set_visible_devices([], \"GPU\"), or make the call under tf.device(\"CPU:0\")"));
  }
  void Compute(OpKernelContext*) override {}
};

// --- shapes

absl::Status unchanged(InferenceContext* context) {
  for (int i = 0; i < context->num_outputs(); ++i) context->set_output(i, context->input(i));
  return absl::OkStatus();
}

/// The number of rows is not known before.
absl::Status other_rows(InferenceContext* context, int count) {
  for (int i = 0; i < count; ++i) {
    ShapeHandle shape = context->input(i);
    if (context->RankKnown(shape) && context->Rank(shape) > 0) {
      TF_RETURN_IF_ERROR(context->ReplaceDim(shape, 0, context->UnknownDim(), &shape));
    }
    context->set_output(i, shape);
  }
  return absl::OkStatus();
}

absl::Status other_rows_everywhere(InferenceContext* context) { return other_rows(context, context->num_outputs()); }

absl::Status other_rows_and_splits(InferenceContext* context) {
  context->set_output(1, context->Vector(InferenceContext::kUnknownDim));
  return other_rows(context, 1);
}

}  // namespace

// --- operations. They are stateful, so that TensorFlow neither drops one nor runs it once instead of often; and of
// communication, so that it does not replace the code of an error.

#define KOLO_TYPES "{bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, half, bfloat16, float, double}"
#define KOLO_OP(name)                                                                                                  \
  REGISTER_OP(name)                                                                                                    \
      .Attr("tensor_name: string = ''")                                                                                \
      .Attr("process_set: int = 0")                                                                                    \
      .SetIsStateful()                                                                                                 \
      .SetIsDistributedCommunication()
#define KOLO_REDUCING_OP(name)                                                                                         \
  KOLO_OP(name)                                                                                                        \
      .Attr("reduce_op: int = 0")                                                                                      \
      .Attr("send_as: int = -1")                                                                                       \
      .Attr("prescale: string = '1'")                                                                                  \
      .Attr("postscale: string = '1'")

KOLO_REDUCING_OP("KoloAllreduce").Attr("T: " KOLO_TYPES).Input("tensor: T").Output("reduced: T").SetShapeFn(unchanged);
KOLO_OP("KoloBroadcast")
    .Attr("T: " KOLO_TYPES)
    .Attr("root_rank: int")
    .Input("tensor: T")
    .Output("copy: T")
    .SetShapeFn(unchanged);
KOLO_REDUCING_OP("KoloReducescatter")
    .Attr("T: " KOLO_TYPES)
    .Input("tensor: T")
    .Output("rows: T")
    .SetShapeFn(other_rows_everywhere);
KOLO_OP("KoloAllgather").Attr("T: " KOLO_TYPES).Input("tensor: T").Output("rows: T").SetShapeFn(other_rows_everywhere);
KOLO_OP("KoloAlltoall")
    .Attr("T: " KOLO_TYPES)
    .Input("tensor: T")
    .Input("splits: int64")
    .Output("rows: T")
    .Output("received_splits: int32")
    .SetShapeFn(other_rows_and_splits);
KOLO_REDUCING_OP("KoloGroupedAllreduce")
    .Attr("T: list(" KOLO_TYPES ") >= 1")
    .Input("tensors: T")
    .Output("reduced: T")
    .SetShapeFn(unchanged);
KOLO_REDUCING_OP("KoloGroupedReducescatter")
    .Attr("T: list(" KOLO_TYPES ") >= 1")
    .Input("tensors: T")
    .Output("rows: T")
    .SetShapeFn(other_rows_everywhere);
KOLO_OP("KoloGroupedAllgather")
    .Attr("T: list(" KOLO_TYPES ") >= 1")
    .Input("tensors: T")
    .Input("numbers_of_rows: int64")
    .Output("rows: T")
    .SetShapeFn(other_rows_everywhere);
KOLO_OP("KoloBarrier").SetShapeFn(tensorflow::shape_inference::NoOutputs);
KOLO_OP("KoloJoin").Output("last: int32").SetShapeFn(tensorflow::shape_inference::ScalarShape);
KOLO_OP("KoloCheckReplicas")
    .Attr("count: int >= 1")
    .Attr("names: list(string)")
    .Attr("first: int = -1")
    .Attr("every: int = 0")
    .Input("variables: count * resource")
    .Input("step: int64")
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

#define KOLO_KERNEL(name)                                                                                              \
  REGISTER_KERNEL_BUILDER(Name("Kolo" #name).Device(tensorflow::DEVICE_CPU), name);                                    \
  REGISTER_KERNEL_BUILDER(Name("Kolo" #name).Device(tensorflow::DEVICE_GPU), Refusal)

KOLO_KERNEL(Allreduce);
KOLO_KERNEL(Broadcast);
KOLO_KERNEL(Reducescatter);
KOLO_KERNEL(Allgather);
KOLO_KERNEL(Alltoall);
KOLO_KERNEL(GroupedAllreduce);
KOLO_KERNEL(GroupedReducescatter);
KOLO_KERNEL(GroupedAllgather);
KOLO_KERNEL(Barrier);
KOLO_KERNEL(Join);
KOLO_KERNEL(CheckReplicas);

}  // namespace kolo_tensorflow

/// Which group a process set is; NULL: none any more. Number 0 is the world.
extern "C" KOLO_API void kolo_tensorflow_set_group(std::int32_t number, kolo_group* group) {
  kolo_tensorflow::groups().set(number, group);
}
