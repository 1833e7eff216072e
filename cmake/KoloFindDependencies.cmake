# SPDX-License-Identifier: Apache-2.0
# Finds what libkolo itself links and names each as a target kolo_deps::<name>. Used by the build and, installed
# beside kolo-config.cmake, by users of a static libkolo, so that both find the same things in the same way.
# A target that stays missing was not found; the caller decides what that means.

macro(kolo_find_threads)
  find_package(Threads REQUIRED)
endmacro()

# kolo_find_by_pkg_config(<name> <pkg-config module> [<header> <library>]): where there is no pkg-config, or it does not
# know the module, by header and library.
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
    elseif(${ARGC} GREATER 2)
      find_path(KOLO_${name}_INCLUDE ${ARGV2})
      find_library(KOLO_${name}_LIBRARY ${ARGV3})
      mark_as_advanced(KOLO_${name}_INCLUDE KOLO_${name}_LIBRARY)
      if(KOLO_${name}_INCLUDE AND KOLO_${name}_LIBRARY)
        add_library(kolo_deps::${name} INTERFACE IMPORTED GLOBAL)
        target_include_directories(kolo_deps::${name} SYSTEM INTERFACE ${KOLO_${name}_INCLUDE})
        target_link_libraries(kolo_deps::${name} INTERFACE ${KOLO_${name}_LIBRARY})
      endif()
    endif()
  endif()
endmacro()

# The CUDA runtime, static where there is that (it looks for the driver when it is used, so programs start where there is none), and
# NCCL's header: of NVIDIA's package, or of the folder nvidia/nccl of the Python wheel that PyTorch brings (by
# CMAKE_PREFIX_PATH). The library itself is opened at run time.
# kolo_nccl_include, kolo_nccl_library and CUDAToolkit_VERSION say what was found.
macro(kolo_find_cuda)
  if(NOT TARGET kolo_deps::cuda)
    find_package(CUDAToolkit 12.0 QUIET)
    if(CUDAToolkit_FOUND)
      find_path(kolo_nccl_include nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
      find_library(kolo_nccl_library NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR}
                                                              "${kolo_nccl_include}/../lib")
      mark_as_advanced(kolo_nccl_include kolo_nccl_library)
    endif()
    set(kolo_cudart_target CUDA::cudart_static)
    if(NOT TARGET CUDA::cudart_static)
      set(kolo_cudart_target CUDA::cudart)
    endif()
    if(TARGET ${kolo_cudart_target})
      # Spelled out instead of CUDA::..., which a parent directory (add_subdirectory) could not see.
      get_target_property(kolo_cudart ${kolo_cudart_target} IMPORTED_LOCATION)
      add_library(kolo_deps::cuda INTERFACE IMPORTED GLOBAL)
      target_include_directories(kolo_deps::cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
      target_link_libraries(kolo_deps::cuda INTERFACE "${kolo_cudart}" Threads::Threads ${CMAKE_DL_LIBS} rt)
      if(kolo_nccl_include)
        add_library(kolo_deps::cuda_headers INTERFACE IMPORTED GLOBAL)
        target_include_directories(kolo_deps::cuda_headers SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS}
                                                                            ${kolo_nccl_include})
      endif()
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

# LibTorch: Debian's, or the one inside a Python wheel, chosen by CMAKE_PREFIX_PATH (the wheel's torch folder, or its
# torch/share/cmake, which is torch.utils.cmake_prefix_path). Its own TorchConfig.cmake is not asked: a LibTorch with
# CUDA ends the configuration there where no CUDA toolkit is installed, and we need only these three files.
macro(kolo_find_torch)
  if(NOT TARGET kolo_deps::torch)
    set(kolo_torch_hints "")
    foreach(kolo_prefix IN LISTS CMAKE_PREFIX_PATH)
      list(APPEND kolo_torch_hints "${kolo_prefix}/../../include")
    endforeach()
    find_path(KOLO_TORCH_INCLUDE torch/csrc/api/include/torch/torch.h HINTS ${kolo_torch_hints})
    cmake_path(GET KOLO_TORCH_INCLUDE PARENT_PATH kolo_torch_prefix)
    set(kolo_torch_libraries "")
    foreach(kolo_library torch_cpu c10)  # the libraries beside the headers before any others
      find_library(KOLO_TORCH_${kolo_library} ${kolo_library} HINTS "${kolo_torch_prefix}/lib")
      list(APPEND kolo_torch_libraries "${KOLO_TORCH_${kolo_library}}")
    endforeach()
    find_library(KOLO_TORCH_c10_cuda c10_cuda HINTS "${kolo_torch_prefix}/lib")  # where it has CUDA
    find_library(KOLO_TORCH_torch_cuda torch_cuda HINTS "${kolo_torch_prefix}/lib")
    if(KOLO_TORCH_torch_cuda)
      # No program calls it: it registers itself when it is loaded.
      list(APPEND kolo_torch_libraries -Wl,--push-state,--no-as-needed "${KOLO_TORCH_torch_cuda}" -Wl,--pop-state)
    endif()
    if(KOLO_TORCH_INCLUDE AND KOLO_TORCH_torch_cpu AND KOLO_TORCH_c10)
      set(kolo_torch_version_file "${KOLO_TORCH_INCLUDE}/torch/headeronly/version.h")
      if(NOT EXISTS "${kolo_torch_version_file}")  # where it was before LibTorch 2.9
        set(kolo_torch_version_file "${KOLO_TORCH_INCLUDE}/torch/csrc/api/include/torch/version.h")
      endif()
      file(STRINGS "${kolo_torch_version_file}" kolo_torch_version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
      list(TRANSFORM kolo_torch_version REPLACE ".* " "")
      list(JOIN kolo_torch_version "." KOLO_TORCH_VERSION)
      file(STRINGS "${KOLO_TORCH_INCLUDE}/ATen/ATen.h" kolo_torch_needs_20 REGEX "error C\\+\\+20 or later")
      add_library(kolo_deps::torch INTERFACE IMPORTED GLOBAL)
      target_include_directories(kolo_deps::torch SYSTEM INTERFACE "${KOLO_TORCH_INCLUDE}"
                                                  "${KOLO_TORCH_INCLUDE}/torch/csrc/api/include")
      target_link_libraries(kolo_deps::torch INTERFACE ${kolo_torch_libraries})
      # Wheels before 2.7 were compiled for the C++ library's older ABI, whose std::string is another type.
      set(KOLO_TORCH_OLD_ABI FALSE)
      set(kolo_torch_config "${kolo_torch_prefix}/share/cmake/Torch/TorchConfig.cmake")
      if(EXISTS "${kolo_torch_config}")
        file(STRINGS "${kolo_torch_config}" kolo_torch_old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
        if(kolo_torch_old_abi)
          set(KOLO_TORCH_OLD_ABI TRUE)
          target_compile_definitions(kolo_deps::torch INTERFACE _GLIBCXX_USE_CXX11_ABI=0)
        endif()
      endif()
      if(kolo_torch_needs_20)
        target_compile_features(kolo_deps::torch INTERFACE cxx_std_20)
      else()
        target_compile_features(kolo_deps::torch INTERFACE cxx_std_17)
      endif()
    endif()
  endif()
endmacro()
