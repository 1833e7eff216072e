# SPDX-License-Identifier: Apache-2.0
# `cpack -G DEB` in a build tree of the preset `packages`: a package of Debian's for each component of
# cmake/KoloInstall.cmake, and python3-kolopy. scripts/release makes and checks them.
set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(library libkolo${soversion})
set(KOLO_PACKAGER "The Kolo authors <kolo@example.org>" CACHE STRING "Who answers for the packages: NAME <ADDRESS>")

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # what is packed is built by the targets kolo_installed and kolopy
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME kolo)
set(CPACK_PACKAGE_VENDOR Kolo)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each component has its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${KOLO_PACKAGER}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}")
set(CPACK_COMPONENTS_ALL "")

# The changelog as Debian wants it: an entry that names this version, with the day on which CHANGELOG.md says that it came.
file(STRINGS CHANGELOG.md day REGEX "^## \\[${PROJECT_VERSION}\\] - [0-9-]+$")
string(REGEX REPLACE ".* " "" day "${day}")
if(NOT day)
  string(TIMESTAMP day "%Y-%m-%d" UTC)
endif()
execute_process(COMMAND date --utc --rfc-email "--date=${day}" OUTPUT_VARIABLE day OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
file(CONFIGURE OUTPUT debian/changelog @ONLY CONTENT [[
kolo (@PROJECT_VERSION@) unstable; urgency=medium

  * Release @PROJECT_VERSION@; CHANGELOG.md in Kolo's source says what is new.

 -- @KOLO_PACKAGER@  @day@
]])
set(changelog "${CMAKE_CURRENT_BINARY_DIR}/debian/changelog")
execute_process(COMMAND gzip -9nkf "${changelog}" COMMAND_ERROR_IS_FATAL ANY)
file(CONFIGURE OUTPUT debian/triggers CONTENT "activate-noawait ldconfig\n")

# kolo_package(<component> <package> <section> <description> [DEPENDS <packages>] [RECOMMENDS <...>] [SUGGESTS <...>])
# The description's first line is the short one.
macro(kolo_package component package section description)
  cmake_parse_arguments(arg "" "DEPENDS;RECOMMENDS;SUGGESTS" "" ${ARGN})
  string(TOUPPER ${component} upper)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${description}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_SHLIBDEPS ON)
  foreach(relation DEPENDS RECOMMENDS SUGGESTS)
    if(arg_${relation})
      set(CPACK_DEBIAN_${upper}_PACKAGE_${relation} "${arg_${relation}}")
    endif()
  endforeach()
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/debian/copyright" "${changelog}.gz" DESTINATION share/doc/${package}
          COMPONENT ${component} EXCLUDE_FROM_ALL)
endmacro()

# Lines of at most 80 characters, as Debian shows them.
string(CONCAT about
  "\nKolo averages the gradients of a training that runs in many processes, on one\n"
  "machine or many, with CPUs or GPUs, while the backward pass still runs.\n")
kolo_package(lib ${library} libs "Distributed training for C++ programs: the library${about}It uses the MPI, the UCX and \
the NCCL that a job finds, and needs none."
             SUGGESTS "libucx0, openmpi-bin | mpich")
set(CPACK_DEBIAN_LIB_PACKAGE_CONTROL_EXTRA "${CMAKE_CURRENT_BINARY_DIR}/debian/triggers")
kolo_package(dev libkolo-dev libdevel
             "Distributed training for C++ programs: headers${about}This package has the headers for C and C++, the CMake \
package kolo,\nand its pkg-config file."
             DEPENDS "${library} (= ${PROJECT_VERSION})" SUGGESTS libkolo-libtorch)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
kolo_package(tools kolo-tools science
             "Distributed training: kolo-run, kolo-info, kolo-why, kolo-timeline${about}The tools start a job, describe a \
machine, say why a job hangs or failed,\nand draw a step."
             DEPENDS "${library} (= ${PROJECT_VERSION})" RECOMMENDS python3)
if(KOLO_BENCH_TOOLS)
  kolo_package(bench kolo-bench science
               "Distributed training: benchmarks of Kolo and of its peers${about}kolo-bench measures collectives beside \
MPI's, kolo-idle an engine that has\nnothing to do."
               DEPENDS "${library} (= ${PROJECT_VERSION})" RECOMMENDS openmpi-bin)
endif()
if(TARGET kolopy)
  kolo_package(python python3-kolopy python
               "Distributed training in Python${about}The package has collectives over numpy arrays and whatever has \
DLPack or\nthe buffer protocol."
               DEPENDS "python3 (>= 3.9), ${library} (= ${PROJECT_VERSION})" RECOMMENDS python3-numpy SUGGESTS libkolo-dev)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/cmake/debian/python3-kolopy/postinst"
                                                "${PROJECT_SOURCE_DIR}/cmake/debian/python3-kolopy/prerm")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
endif()
if(KOLO_HAS_TORCH)
  kolo_package(libtorch libkolo-libtorch libs
               "Distributed training with LibTorch${about}This package has the library kolo::libtorch and its header."
               DEPENDS "${library} (= ${PROJECT_VERSION}), libkolo-dev (= ${PROJECT_VERSION})" RECOMMENDS libtorch-dev)
  set(CPACK_DEBIAN_LIBTORCH_PACKAGE_CONTROL_EXTRA "${CMAKE_CURRENT_BINARY_DIR}/debian/triggers")
endif()
include(CPack)
