// SPDX-License-Identifier: Apache-2.0

/// @file
/// Options of calls: small structs, one comment and one default a field; fields are only ever appended. `with_...`
/// chains, because C++17 has no designated initialisers.
#ifndef KOLO_OPTIONS_HPP
#define KOLO_OPTIONS_HPP

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <kolo/duration.hpp>
#include <kolo/log.hpp>
#include <kolo/types.hpp>

namespace kolo {

/// How a context is made. A value given here wins over the environment.
struct Options {
  /// Settings by the names of their environment variables: {"KOLO_TIMEOUT_S", "30"}. See docs/variables.md.
  std::map<std::string, std::string> settings;
  /// Where log records go; empty: lines on standard error.
  LogSink log_sink;

  Options& with_setting(std::string name, std::string value) {
    settings.insert_or_assign(std::move(name), std::move(value));
    return *this;
  }
  Options& with_log_sink(LogSink sink) {
    log_sink = std::move(sink);
    return *this;
  }
};

/// Options of `allreduce` and its like. All but the timeout are part of the signature: the same on every rank.
struct AllreduceOptions {
  /// What to compute.
  ReduceOp op = ReduceOp::sum;
  /// Every rank's input is multiplied by this first, in the accumulator's type (NCCL: the tensor's). 1 for integers.
  double prescale = 1.0;
  /// The result (of an average: after the division) is multiplied by this. 1 unless floating-point.
  double postscale = 1.0;
  /// How long this operation may take before it becomes a fatal error; `KOLO_TIMEOUT_S` when empty. More than zero
  /// (`Error` invalid_argument at the call).
  std::optional<std::chrono::nanoseconds> timeout;
  /// `DType::float16` or `DType::bfloat16`: float32 and float64 tensors travel as that type. Every input is rounded to
  /// it after prescale, in the copy that sends it; the sum is computed in float32 (so between nodes partial sums travel
  /// as float32), and the result rounded to it once more, so that all ranks hold the same. Values beyond its range
  /// become infinite. Tensors of 16 bits are sent as they are; for other types it is an error (invalid_argument). A
  /// world of one sends and rounds nothing. In `allreduce` and its forms, in CPU memory; elsewhere an error
  /// (unsupported). What lies in a `GradientArena` is copied then as any memory.
  std::optional<DType> send_as;

  AllreduceOptions& with_op(ReduceOp value) {
    op = value;
    return *this;
  }
  AllreduceOptions& with_prescale(double value) {
    prescale = value;
    return *this;
  }
  AllreduceOptions& with_postscale(double value) {
    postscale = value;
    return *this;
  }
  template <class Rep, class Period>
  AllreduceOptions& with_timeout(std::chrono::duration<Rep, Period> value) {
    timeout = detail::to_nanoseconds(value);
    return *this;
  }
  AllreduceOptions& with_send_as(DType value) {
    send_as = value;
    return *this;
  }
};

/// Options of collectives that have nothing but a deadline.
struct CallOptions {
  /// How long this operation may take before it becomes a fatal error; `KOLO_TIMEOUT_S` when empty. More than zero
  /// (`Error` invalid_argument at the call).
  std::optional<std::chrono::nanoseconds> timeout;

  template <class Rep, class Period>
  CallOptions& with_timeout(std::chrono::duration<Rep, Period> value) {
    timeout = detail::to_nanoseconds(value);
    return *this;
  }
};

}  // namespace kolo

#endif  // KOLO_OPTIONS_HPP
