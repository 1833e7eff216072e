# SPDX-License-Identifier: Apache-2.0
# KOLO_WITH_PYTHON: the package kolo_torch, against the PyTorch that the interpreter's own environment has. `pip install
# .` builds in an isolated environment, which does not have it; where it lies is then known all the same, and only its
# headers, its libraries and its version's file are read. CMAKE_PREFIX_PATH with another torch/share/cmake wins.
find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Module)

# kolo_python_package(<variable> <file> <sentence>): unless the variable names it, the folder of the package that has this
# file (torch/version.py), in the interpreter's environment. An error says the sentence.
function(kolo_python_package variable file sentence)
  if(${variable})
    return()
  endif()
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -c "import os, site, sys, sysconfig
folders = [sysconfig.get_path('platlib'), sysconfig.get_path('purelib'), site.getusersitepackages(),
           *site.getsitepackages(), *sys.path]
print(next((os.path.dirname(f + '/${file}') for f in folders if os.path.exists(f + '/${file}')), ''))"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT folder)
    message(FATAL_ERROR "${sentence}")
  endif()
  set(${variable} "${folder}" PARENT_SCOPE)
endfunction()

set(KOLO_TORCH_PACKAGE "" CACHE PATH "The folder of the Python package torch that kolo_torch is built against")
if(NOT KOLO_TORCH_PACKAGE)
  foreach(kolo_prefix IN LISTS CMAKE_PREFIX_PATH)
    cmake_path(SET kolo_candidate NORMALIZE "${kolo_prefix}/../..")
    if(EXISTS "${kolo_candidate}/version.py")
      set(KOLO_TORCH_PACKAGE "${kolo_candidate}")
      break()
    endif()
  endforeach()
endif()
kolo_python_package(KOLO_TORCH_PACKAGE torch/version.py
  "kolo_torch is built against the PyTorch of its environment, and ${Python3_EXECUTABLE} has none: install torch first \
(without a GPU PyTorch's build for CPUs is enough), or name its folder (pip install ./python/kolo_torch \
-C cmake.define.KOLO_TORCH_PACKAGE=/where/torch).")
file(STRINGS "${KOLO_TORCH_PACKAGE}/version.py" KOLO_TORCH_PYTHON_VERSION REGEX "^__version__")
string(REGEX REPLACE ".*['\"]([^'\"]+)['\"].*" "\\1" KOLO_TORCH_PYTHON_VERSION "${KOLO_TORCH_PYTHON_VERSION}")
# Debian's package has links to the headers in /usr/include, where they are found.
if(NOT IS_SYMLINK "${KOLO_TORCH_PACKAGE}/include/torch")
  list(PREPEND CMAKE_PREFIX_PATH "${KOLO_TORCH_PACKAGE}/share/cmake")
endif()
set(KOLO_WITH_TORCH ON)
