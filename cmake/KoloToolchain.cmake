# SPDX-License-Identifier: Apache-2.0
# Compiler settings. Flags for our own code ride on the target kolo_build_flags, so that a project which adds
# Kolo by add_subdirectory keeps its own.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(KOLO_CCACHE ccache)
if(KOLO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${KOLO_CCACHE}")
  if(NOT KOLO_COVERAGE)
    # One object serves every build tree with the same flags (the consumer tests build the library several times more).
    # So paths in the tree count from its top, and the directory of the compilation does not count. ccache keeps what
    # includes a precompiled header only when told that macros and times in that matter to nobody. Locale: ctest, which
    # runs the consumers' builds, sets variables of it, and no object would be found again there.
    list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_BINARY_DIR}
                                             CCACHE_SLOPPINESS=pch_defines,time_macros,locale)
  endif()
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")  # every program in one place: build/release/bin
endif()

# For ccache: gcc says which precompiled header it read; in clang's does not stand when it was made.
set(KOLO_PRECOMPILED_HEADER_OPTIONS
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess> "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")

add_library(kolo_build_flags INTERFACE)
target_compile_features(kolo_build_flags INTERFACE cxx_std_20)
target_compile_options(kolo_build_flags INTERFACE -Wall -Wextra -Wpedantic)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(kolo_build_flags INTERFACE -Wthread-safety)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 sees overlaps and endless copies in the concatenation of std::strings where there are none (its bug 105651).
  target_compile_options(kolo_build_flags INTERFACE -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
endif()
if(KOLO_WERROR)
  target_compile_options(kolo_build_flags INTERFACE -Werror)
endif()
if(KOLO_SANITIZE)
  # Undefined behaviour ends the program: a report that only scrolls by passes a test.
  # A target's property KOLO_NO_SANITIZE names those of the checks that it goes without, because they would compile for
  # minutes and find nothing there.
  set(kolo_left_out $<TARGET_PROPERTY:KOLO_NO_SANITIZE>)
  target_compile_options(kolo_build_flags INTERFACE -fsanitize=${KOLO_SANITIZE} -fno-sanitize-recover=all
    "$<$<BOOL:${kolo_left_out}>:-fno-sanitize=$<JOIN:${kolo_left_out},$<COMMA>>>")
  target_link_options(kolo_build_flags INTERFACE -fsanitize=${KOLO_SANITIZE})
endif()
if(KOLO_SANITIZE MATCHES undefined)
  # This check asks a pipe whether memory can be read. A process without a free descriptor has no pipe, and the check
  # then reports every object; some tests take the descriptors away. Reads of freed objects are the address sanitizer's.
  target_compile_options(kolo_build_flags INTERFACE -fno-sanitize=vptr)
endif()
if(KOLO_SANITIZE MATCHES thread)
  # The thread sanitizer does not see standalone fences. We have none; Asio has some beside the mutexes that do the work.
  target_compile_definitions(kolo_build_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK=1)
endif()
if(KOLO_COVERAGE)
  # Many threads count: without atomic updates the counters themselves race and lose lines.
  target_compile_options(kolo_build_flags INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(kolo_build_flags INTERFACE --coverage)
endif()

# kolo_compile_together(<target> [<files in a unit>]): with KOLO_UNITY several files are one unit, all of them by default.
function(kolo_compile_together target)
  if(KOLO_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE "${ARGV1}")
    # What a file keeps to itself gcc takes for a header's once the file is included.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()
