# graft_add_cuda_plugin: the CUDA variant of a plugin, beside the CPU one. Included by GraftPlugin.cmake.
#
#   graft_add_cuda_plugin(my-plugin-cuda SOURCES cuda/my_plugin_cuda.cu [cuda/plan.cc ...]
#                         [SM90A hopper.cu ...] [LIBRARIES ...] [INCLUDES ...] [OUTPUT dir])
#
# Makes lib<name>_cuda.so in the plugin's folder, with plugin.yaml, whose name, version and summary it takes, as
# graft_add_plugin does. Sources that end in .cu are compiled by nvcc for sm_80 and sm_90, with PTX of compute_90
# for devices to come; those of SM90A have machine code for sm_90a in place of sm_90, and must do without its
# instructions where __CUDA_ARCH_FEAT_SM90_ALL is not defined. Other sources are compiled by the C++ compiler, with
# CUDA's headers. INCLUDES are searched by both, and so is kernels-cuda: "device/launch.cuh". The runtime is linked statically and opens the driver when it is
# first called, so that the library can be loaded on any machine.
#
# What ptxas says of registers, spills, stack and shared memory comes to
# ${CMAKE_BINARY_DIR}/report/<name>/<source>.txt; everything else the compiler says is printed.
#
# GRAFT_CUDA        ON: CUDA variants are built; OFF (default): the function does nothing
# GRAFT_NVCC        path of nvcc, CUDA 13 (kernels-cuda/toolkit.sh prints one)
# GRAFT_NVCC_FLAGS  more options of nvcc, such as -lineinfo
# GRAFT_CUDA_ARCHITECTURES  80;90 (default); one of them makes libraries that run there alone, in half the time

include_guard(GLOBAL)

option(GRAFT_CUDA "build the CUDA variants of plugins" OFF)
set(GRAFT_NVCC "" CACHE FILEPATH "nvcc of CUDA 13")
set(GRAFT_NVCC_FLAGS "" CACHE STRING "more options of nvcc, separated by semicolons")
set(GRAFT_CUDA_ARCHITECTURES "80;90" CACHE STRING "compute capabilities to compile for, of 80 and 90")

set(GRAFT_CUDA_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/compile_cuda.cmake")

if(GRAFT_CUDA)
  execute_process(COMMAND "${GRAFT_NVCC}" --version OUTPUT_VARIABLE release ERROR_QUIET RESULT_VARIABLE failed)
  if(failed OR NOT release MATCHES "release 13\\.")
    message(FATAL_ERROR "graft: GRAFT_NVCC='${GRAFT_NVCC}' is not an nvcc of CUDA 13. "
            "Name one, or let graft bring it: -DGRAFT_NVCC=$(kernels-cuda/toolkit.sh)")
  endif()
  get_filename_component(nvcc "${GRAFT_NVCC}" REALPATH)
  get_filename_component(toolkit "${nvcc}/../.." ABSOLUTE)
  # NVIDIA's installer, distributions and PyPI lay a toolkit out in different ways.
  find_path(GRAFT_CUDA_INCLUDE cuda_runtime_api.h REQUIRED
            HINTS "${toolkit}/include" "${toolkit}/targets/x86_64-linux/include" /usr/include
            DOC "folder of cuda_runtime_api.h")
  find_library(GRAFT_CUDA_RUNTIME libcudart_static.a REQUIRED
               HINTS "${toolkit}/lib64" "${toolkit}/lib" "${toolkit}/targets/x86_64-linux/lib"
               DOC "CUDA's runtime as a static library")
  find_package(Threads REQUIRED)
  add_custom_target(graft-cuda)  # all CUDA variants, and nothing else
endif()

# Adds the object of one .cu file to a target. `architectures` are nvcc's -gencode options.
function(graft_compile_cuda target name source architectures)
  get_filename_component(path "${source}" ABSOLUTE)
  get_filename_component(stem "${source}" NAME)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cuda")
  set(report "${CMAKE_BINARY_DIR}/report/${name}/${stem}.txt")
  set(object "${folder}/${stem}.o")
  file(MAKE_DIRECTORY "${folder}" "${CMAKE_BINARY_DIR}/report/${name}")
  set(includes "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
  add_custom_command(
    OUTPUT "${object}" "${report}" DEPFILE "${object}.d"
    DEPENDS "${path}" "${folder}/plugin.h" "${GRAFT_CUDA_SCRIPT}" "${GRAFT_NVCC}"
    COMMENT "Compiling CUDA ${name}/${stem}"
    COMMAND "${CMAKE_COMMAND}" "-DREPORT=${report}" -P "${GRAFT_CUDA_SCRIPT}" --
            "${GRAFT_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++17 -O3 ${architectures}
            --expt-relaxed-constexpr --threads 2 -Xptxas -v
            -Xcompiler -fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden
            -Xcompiler -ffunction-sections,-fdata-sections,-Wall,-Wno-unknown-pragmas
            "$<$<BOOL:${GRAFT_HARDEN_COMPILE}>:-Xcompiler;$<JOIN:${GRAFT_HARDEN_COMPILE},$<COMMA>>>"
            -include "${folder}/plugin.h" "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>" ${GRAFT_NVCC_FLAGS}
            -MD -MF "${object}.d" -c "${path}" -o "${object}"
    COMMAND_EXPAND_LISTS VERBATIM)
  target_sources(${target} PRIVATE "${object}")
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
endfunction()

function(graft_add_cuda_plugin target)
  if(NOT GRAFT_CUDA)
    return()
  endif()
  cmake_parse_arguments(arg "" "OUTPUT" "SOURCES;SM90A;LIBRARIES;INCLUDES" ${ARGN})
  if(NOT arg_SOURCES AND NOT arg_SM90A)
    message(FATAL_ERROR "graft_add_cuda_plugin(${target}): no SOURCES")
  endif()
  graft_plugin_facts("${CMAKE_CURRENT_SOURCE_DIR}/plugin.yaml" "${arg_OUTPUT}")
  set(device_sources ${arg_SOURCES})
  list(FILTER device_sources INCLUDE REGEX "\\.cu$")
  list(FILTER arg_SOURCES EXCLUDE REGEX "\\.cu$")

  list(JOIN GRAFT_CUDA_ARCHITECTURES "," capabilities)
  # The same definitions for both compilers, in a header: a summary is no word for a command line.
  set(definitions "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cuda/plugin.h")
  file(CONFIGURE OUTPUT "${definitions}" @ONLY CONTENT [[
#define GRAFT_PLUGIN_NAME "@plugin_name@"
#define GRAFT_PLUGIN_VERSION "@plugin_version@"
#define GRAFT_PLUGIN_SUMMARY "@plugin_summary@"
#define GRAFT_PLUGIN_DEVICE "cuda"
#define GRAFT_PLUGIN_ISA "x86-64"
#define GRAFT_PLUGIN_SM "@capabilities@"
#define GRAFT_PLUGIN_CUDA "13"
]])

  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE graft_kit ${arg_LIBRARIES}
                        "${GRAFT_CUDA_RUNTIME}" Threads::Threads rt ${CMAKE_DL_LIBS})
  target_include_directories(${target} PRIVATE "${GRAFT_ABI_DIR}/../kernels-cuda" ${arg_INCLUDES})
  target_include_directories(${target} SYSTEM PRIVATE "${GRAFT_CUDA_INCLUDE}")
  target_compile_options(${target} PRIVATE "SHELL:-include \"${definitions}\"")
  graft_compile(${target})
  set(usual)
  set(special)
  if(80 IN_LIST GRAFT_CUDA_ARCHITECTURES)
    set(usual -gencode arch=compute_80,code=sm_80)
    set(special ${usual})
  endif()
  if(90 IN_LIST GRAFT_CUDA_ARCHITECTURES)
    list(APPEND usual -gencode arch=compute_90,code=[sm_90,compute_90])
    list(APPEND special -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90)
  endif()
  foreach(source IN LISTS device_sources)
    graft_compile_cuda(${target} "${plugin_name}" "${source}" "${usual}")
  endforeach()
  foreach(source IN LISTS arg_SM90A)
    graft_compile_cuda(${target} "${plugin_name}" "${source}" "${special}")
  endforeach()
  graft_link_plugin(${target} "${plugin_stem}_cuda" "${plugin_folder}")
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  add_dependencies(graft-cuda ${target})
endfunction()
