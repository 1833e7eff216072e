# SPDX-License-Identifier: Apache-2.0
# How modules become libkolo, and how programs are made of a folder's files. Sources are found by glob, so that a new
# file needs no line here.

# kolo/config.hpp: what users' preprocessors may ask. The library's own sources do not, so that builds with and without
# a part share their objects.
foreach(part UCX CUDA TORCH)
  set(KOLO_CONFIG_${part} 0)
  if(KOLO_HAS_${part})
    set(KOLO_CONFIG_${part} 1)
  endif()
endforeach()
configure_file(cmake/config.hpp.in include/kolo/config.hpp @ONLY)

set(KOLO_INCLUDE_ROOTS "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include" "${PROJECT_SOURCE_DIR}/src"
                       "${PROJECT_SOURCE_DIR}")

# kolo_module(<name> [DIR <dir>] [FOLDERS <folders>...] [LIBS <targets>...] [DEFINITIONS <definitions>...])
# A module is an object library of all .cpp files in its folder (default: the current one), and in those folders of it
# that are no modules of their own. Symbols are hidden unless marked KOLO_API. A module without .cpp files is headers
# only and makes no target.
# With KOLO_UNITY its files are compiled together: names in their unnamed namespaces must differ.
function(kolo_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DIR" "FOLDERS;LIBS;DEFINITIONS")
  if(NOT arg_DIR)
    set(arg_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
  endif()
  set(patterns "${arg_DIR}/*.cpp")
  foreach(folder IN LISTS arg_FOLDERS)
    list(APPEND patterns "${arg_DIR}/${folder}/*.cpp")
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(NOT sources)
    return()
  endif()
  add_library(kolo_module_${name} OBJECT ${sources})
  kolo_compile_module(kolo_module_${name})
  target_include_directories(kolo_module_${name} PRIVATE ${KOLO_INCLUDE_ROOTS})
  target_compile_definitions(kolo_module_${name} PRIVATE KOLO_VERSION_STRING="${PROJECT_VERSION}" ${arg_DEFINITIONS})
  target_link_libraries(kolo_module_${name} PRIVATE kolo_build_flags Threads::Threads ${arg_LIBS})
  set_property(GLOBAL APPEND PROPERTY KOLO_MODULES ${name})
  set_property(GLOBAL APPEND PROPERTY KOLO_MODULE_OBJECTS $<TARGET_OBJECTS:kolo_module_${name}>)
endfunction()

# What most files include of the standard library.
set(KOLO_STD_HEADERS <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <deque> <functional>
                     <map> <memory> <mutex> <numeric> <optional> <set> <sstream> <string> <string_view> <thread>
                     <unordered_map> <utility> <variant> <vector>)

# kolo_compile_module(<target>): how the library's own files are compiled. With KOLO_UNITY they are compiled sixteen at a
# time, behind a precompiled header of the standard library: in a third of the time. (The preset `clang` reads each file
# alone, and so finds an include that is missing.)
function(kolo_compile_module target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON CXX_EXTENSIONS OFF)
  # A context may be shut down at exit, after statics of the library would have been destroyed: there must be none.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wexit-time-destructors>)
  kolo_compile_together(${target} 16)
  if(NOT KOLO_UNITY OR CMAKE_DISABLE_PRECOMPILE_HEADERS OR KOLO_COVERAGE)
    return()
  endif()
  target_compile_options(${target} PRIVATE ${KOLO_PRECOMPILED_HEADER_OPTIONS})
  if(NOT TARGET kolo_std_header)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/std_header.cpp" CONTENT "// Compiled for its precompiled header.\n")
    add_library(kolo_std_header OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/std_header.cpp")
    kolo_compile_module(kolo_std_header)
    target_link_libraries(kolo_std_header PRIVATE kolo_build_flags Threads::Threads)
    target_precompile_headers(kolo_std_header PRIVATE ${KOLO_STD_HEADERS})
  endif()
  if(NOT target STREQUAL kolo_std_header)
    target_precompile_headers(${target} REUSE_FROM kolo_std_header)
  endif()
endfunction()

# kolo_device_objects(<sources>...): what stands between the modules and a real device, compiled by nvcc where it is .cu.
# Apart from the modules, because tests put an emulated device in its place.
function(kolo_device_objects)
  add_library(kolo_device OBJECT ${ARGN})
  set_target_properties(kolo_device PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON CXX_EXTENSIONS OFF CUDA_EXTENSIONS OFF CUDA_STANDARD 17)
  target_include_directories(kolo_device PRIVATE ${KOLO_INCLUDE_ROOTS})
  target_link_libraries(kolo_device PRIVATE kolo_deps::cuda_headers)
  target_compile_options(kolo_device PRIVATE
    # -Wpedantic is not for the code that nvcc makes.
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${KOLO_WERROR}>>:-Werror=all-warnings>")
endfunction()

# The modules' objects with every symbol in reach, and what they link but for the device.
function(kolo_internal_library name)
  get_property(objects GLOBAL PROPERTY KOLO_MODULE_OBJECTS)
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${objects})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(${name} INTERFACE ${KOLO_INCLUDE_ROOTS})
  target_link_libraries(${name} INTERFACE kolo_build_flags Boost::headers Threads::Threads kolo_deps::highway
                                          ${CMAKE_DL_LIBS})
  if(KOLO_HAS_UCX)
    target_link_libraries(${name} INTERFACE kolo_deps::ucx_headers)
    target_compile_definitions(${name} INTERFACE KOLO_HAS_UCX=1)
  endif()
  if(KOLO_HAS_CUDA)
    target_compile_definitions(${name} INTERFACE KOLO_HAS_CUDA=1)
  endif()
endfunction()

# Makes kolo (kolo::kolo), what users link, and kolo_internal: the same objects with every symbol in reach, for
# unit tests and micro benchmarks. With CUDA also kolo_emulated: kolo_internal without the device, for tests that link
# an emulated one.
function(kolo_library)
  get_property(objects GLOBAL PROPERTY KOLO_MODULE_OBJECTS)
  if(NOT objects)
    message(STATUS "Kolo has no sources yet: no library, no programs")
    return()
  endif()
  set(links Threads::Threads kolo_deps::highway ${CMAKE_DL_LIBS})
  if(KOLO_HAS_CUDA)
    list(APPEND links kolo_deps::cuda)
    list(APPEND objects $<TARGET_OBJECTS:kolo_device>)
  endif()

  add_library(kolo ${objects})
  add_library(kolo::kolo ALIAS kolo)
  set_target_properties(kolo PROPERTIES VERSION ${PROJECT_VERSION}
                                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                                        LINKER_LANGUAGE CXX)
  target_compile_features(kolo PUBLIC cxx_std_17)
  if(CMAKE_CXX_FLAGS MATCHES "-D_GLIBCXX_USE_CXX11_ABI=0")
    target_compile_definitions(kolo PUBLIC _GLIBCXX_USE_CXX11_ABI=0)  # a user's std::string must be ours
  endif()
  target_include_directories(kolo PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                         $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(kolo PRIVATE ${links} $<BUILD_INTERFACE:kolo_build_flags>)
  if(BUILD_SHARED_LIBS AND NOT KOLO_SANITIZE)
    target_link_options(kolo PRIVATE LINKER:-z,defs)  # what is missing fails here, not in a user's build
    # A process that closes the library keeps it: at exit the C library calls what it has registered (on_exit).
    target_link_options(kolo PRIVATE LINKER:-z,nodelete)
    # A compiler may link its C++ library statically: of another release than the program's, the two must not mix.
    target_link_options(kolo PRIVATE LINKER:--exclude-libs,ALL)
    # Templates of other libraries are exported wherever their headers say so; these are not Kolo's to offer.
    target_link_options(kolo PRIVATE "LINKER:--version-script,${PROJECT_SOURCE_DIR}/cmake/exports.map")
    set_target_properties(kolo PROPERTIES LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/exports.map")
    # The library calls its own functions directly: they are not meant to be replaced, and small calls make many.
    target_link_options(kolo PRIVATE LINKER:-Bsymbolic-functions)
  endif()

  kolo_internal_library(kolo_internal)
  if(KOLO_HAS_CUDA)
    target_sources(kolo_internal PRIVATE $<TARGET_OBJECTS:kolo_device>)
    target_link_libraries(kolo_internal INTERFACE kolo_deps::cuda)
    kolo_internal_library(kolo_emulated)
    target_link_libraries(kolo_emulated INTERFACE kolo_deps::cuda_headers)
  endif()
endfunction()

# kolo_program(<name> SOURCES <files>... [LIBS <targets>...]): an executable of ours that uses the public API.
function(kolo_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE kolo::kolo kolo_build_flags ${arg_LIBS})
  if(KOLO_HAS_CUDA)
    target_compile_definitions(${name} PRIVATE KOLO_HAS_CUDA=1)
  endif()
endfunction()

# kolo_c_program(<name> SOURCES <files>... [LIBS <targets>...]): the same in C99.
function(kolo_c_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF CXX_EXTENSIONS OFF)
  target_link_libraries(${name} PRIVATE kolo::kolo kolo_build_flags ${arg_LIBS})
endfunction()

# kolo_precompile_libtorch(<target>): a program of ours that includes kolo/libtorch.hpp, which is 15 s of LibTorch's
# headers, shares that header compiled. No file gets by without an include that it needs: each includes it itself.
# CMAKE_DISABLE_PRECOMPILE_HEADERS=ON leaves it out.
function(kolo_precompile_libtorch target)
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS OR KOLO_COVERAGE OR NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  if(NOT TARGET kolo_libtorch_header)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/libtorch_header.cpp" CONTENT "// Compiled for its precompiled header.\n")
    add_library(kolo_libtorch_header OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/libtorch_header.cpp")
    set_target_properties(kolo_libtorch_header PROPERTIES CXX_EXTENSIONS OFF)
    target_link_libraries(kolo_libtorch_header PRIVATE kolo::libtorch kolo_build_flags)
    target_compile_options(kolo_libtorch_header PRIVATE ${KOLO_PRECOMPILED_HEADER_OPTIONS})
    target_precompile_headers(kolo_libtorch_header PRIVATE <kolo/libtorch.hpp>)
  endif()
  target_compile_options(${target} PRIVATE ${KOLO_PRECOMPILED_HEADER_OPTIONS})
  target_precompile_headers(${target} REUSE_FROM kolo_libtorch_header)
endfunction()

# Each .cpp of the folder becomes a program of its name, '_' written '-'.
function(kolo_programs dir)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${dir}/*.cpp")
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    string(REPLACE "_" "-" name "${name}")
    kolo_program(${name} SOURCES "${source}" LIBS Boost::program_options nlohmann_json::nlohmann_json
                                                  $<TARGET_NAME_IF_EXISTS:kolo_deps::hwloc>)
    set_property(GLOBAL APPEND PROPERTY KOLO_PROGRAMS_${dir} ${name})
  endforeach()
endfunction()

function(kolo_micro_benchmarks dir)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${dir}/*.cpp")
  if(NOT sources OR NOT TARGET kolo_internal OR NOT TARGET benchmark::benchmark_main)
    return()
  endif()
  add_executable(kolo-micro ${sources})
  set_target_properties(kolo-micro PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(kolo-micro PRIVATE kolo_internal benchmark::benchmark_main)
endfunction()

# Each folder is a program of its name: by its own CMakeLists.txt, or of all its .cpp files.
function(kolo_examples dir)
  file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/${dir}/*")
  foreach(folder IN LISTS folders)
    cmake_path(GET folder FILENAME name)
    if(EXISTS "${folder}/CMakeLists.txt")
      add_subdirectory("${folder}")
    elseif(IS_DIRECTORY "${folder}")
      file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cpp")
      if(sources)
        kolo_program(${name} SOURCES ${sources} LIBS Boost::program_options)
      endif()
    endif()
  endforeach()
endfunction()
