# SPDX-License-Identifier: Apache-2.0
# Finds what libkolo itself links and names each as a target kolo_deps::<name>. Used by the build and, installed
# beside kolo-config.cmake, by users of a static libkolo, so that both find the same things in the same way.
# A target that stays missing was not found; the caller decides what that means.

macro(kolo_find_threads)
  find_package(Threads REQUIRED)
endmacro()

# kolo_find_by_pkg_config(<name> <pkg-config module>)
macro(kolo_find_by_pkg_config name module)
  if(NOT TARGET kolo_deps::${name})
    find_package(PkgConfig QUIET)
    if(PkgConfig_FOUND)
      pkg_check_modules(KOLO_PC_${name} QUIET IMPORTED_TARGET ${module})
    endif()
    if(KOLO_PC_${name}_FOUND)
      # Spelled out instead of PkgConfig::..., which a parent directory (add_subdirectory) could not see.
      add_library(kolo_deps::${name} INTERFACE IMPORTED GLOBAL)
      target_include_directories(kolo_deps::${name} SYSTEM INTERFACE ${KOLO_PC_${name}_INCLUDE_DIRS})
      target_compile_options(kolo_deps::${name} INTERFACE ${KOLO_PC_${name}_CFLAGS_OTHER})
      target_link_libraries(kolo_deps::${name} INTERFACE ${KOLO_PC_${name}_LINK_LIBRARIES})
    endif()
  endif()
endmacro()

# The C interface of MPI alone. It is asked for as CXX because our project and its users need no C compiler; the
# deprecated C++ bindings (libmpi_cxx and the like) are left out again.
macro(kolo_find_mpi)
  if(NOT TARGET kolo_deps::mpi)
    set(MPI_CXX_SKIP_MPICXX TRUE)
    find_package(MPI QUIET COMPONENTS CXX)
    if(MPI_CXX_FOUND)
      add_library(kolo_deps::mpi INTERFACE IMPORTED GLOBAL)
      set(kolo_mpi_libraries ${MPI_CXX_LIBRARIES})
      list(FILTER kolo_mpi_libraries EXCLUDE REGEX "mpi(ch)?_?cxx")
      target_include_directories(kolo_deps::mpi SYSTEM INTERFACE ${MPI_CXX_INCLUDE_DIRS})
      target_compile_definitions(kolo_deps::mpi INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
      target_link_libraries(kolo_deps::mpi INTERFACE ${kolo_mpi_libraries})
    endif()
  endif()
endmacro()
