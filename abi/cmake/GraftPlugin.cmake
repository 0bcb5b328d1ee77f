# graft_add_plugin and graft_add_kernels: how a plugin is built.
#
#   include(path/to/abi/cmake/GraftPlugin.cmake)
#   graft_add_plugin(my-plugin SOURCES my_plugin.cc
#                    [KERNELS ...] [LIBRARIES ...] [INCLUDES ...] [ISA ...] [OUTPUT dir])
#
# Reads name, version, summary and the library's file name from plugin.yaml beside CMakeLists.txt, so that
# they are stated once, and makes ${GRAFT_PLUGIN_OUTPUT}/my-plugin with plugin.yaml and the library in it: a
# folder to install or to put on GRAFT_PLUGIN_PATH (OUTPUT names another place). KERNELS are libraries of
# graft_add_kernels that go into it. ISA lists what the library dispatches among on x86-64 beside the
# baseline (it goes into the ELF note; default: with KERNELS those of graft/isa.h, else none).
#
#   graft_add_kernels(my_kernel SOURCES kernel.cc [LIBRARIES ...])
#
# Vector code by itself, without any runtime, as graft/isa.h describes it: for plugins, tests and benchmarks,
# which link it. Needs Highway's headers (apt: libhwy-dev).
#
# GRAFT_ORT_INCLUDE   folder of onnxruntime_c_api.h (any version from 1.18), where sources need more of it than the kit
# GRAFT_SANITIZE      ON: address and undefined-behaviour sanitizers, for tests
# GRAFT_WITHOUT_ISAS  instruction sets that vector code is not compiled for, HWY_AVX2 and HWY_AVX3: for tests that run on
#                     one machine

include_guard(GLOBAL)

set(GRAFT_ABI_DIR "${CMAKE_CURRENT_LIST_DIR}/..")
set(GRAFT_ORT_INCLUDE "" CACHE PATH "folder of onnxruntime_c_api.h; the kit brings what it uses itself")
set(GRAFT_PLUGIN_OUTPUT "${CMAKE_BINARY_DIR}/plugins" CACHE PATH "where plugin folders are made")
set(GRAFT_WITHOUT_ISAS "" CACHE STRING "instruction sets that vector code is not compiled for, of HWY_AVX2 and HWY_AVX3")
option(GRAFT_SANITIZE "build with address and undefined-behaviour sanitizers" OFF)

# Interface target: include folders and language level of anything that uses the kit.
add_library(graft_kit INTERFACE)
target_include_directories(graft_kit INTERFACE "${GRAFT_ABI_DIR}" "${GRAFT_ABI_DIR}/kit")
target_compile_features(graft_kit INTERFACE cxx_std_17)
if(GRAFT_ORT_INCLUDE)
  if(NOT EXISTS "${GRAFT_ORT_INCLUDE}/onnxruntime_c_api.h")
    message(FATAL_ERROR "graft: no onnxruntime_c_api.h in GRAFT_ORT_INCLUDE='${GRAFT_ORT_INCLUDE}'; "
            "leave it out: what the kit uses of it is in graft_ort.h")
  endif()
  target_include_directories(graft_kit SYSTEM INTERFACE "${GRAFT_ORT_INCLUDE}")
endif()

# The processor, as manifests name it.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(GRAFT_ARCH arm64)
else()
  set(GRAFT_ARCH amd64)
endif()

if(GRAFT_SANITIZE)
  # What object-size finds AddressSanitizer sees when it happens; kernels compile longer with it.
  set(GRAFT_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize=object-size -fno-sanitize-recover=all
      -fno-omit-frame-pointer -g1)
endif()

include("${CMAKE_CURRENT_LIST_DIR}/Hardening.cmake")

# Sets `out` to the value of a top-level key of a plugin.yaml.
function(graft_manifest_value out manifest key)
  file(STRINGS "${manifest}" lines REGEX "^${key}: *")
  if(NOT lines)
    message(FATAL_ERROR "graft: ${manifest} has no line '${key}: ...'")
  endif()
  list(GET lines 0 line)
  string(REGEX REPLACE "^${key}: *" "" value "${line}")
  string(REGEX REPLACE " +#.*$" "" value "${value}")
  string(REGEX REPLACE "^[\"'](.*)[\"'] *$" "\\1" value "${value}")
  string(STRIP "${value}" value)
  set(${out} "${value}" PARENT_SCOPE)
endfunction()

# What kernels and plugins share.
function(graft_compile target)
  # Optimising what sanitizers have instrumented takes compilers many times longer than it saves.
  target_compile_options(${target} PRIVATE
    $<IF:$<BOOL:${GRAFT_SANITIZE}>,-O1,-O3> -Wall -Wextra -ffunction-sections -fdata-sections -fno-math-errno
    ${GRAFT_HARDEN_COMPILE} ${ARGN} ${GRAFT_SANITIZE_FLAGS})
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
endfunction()

# Sets plugin_name, plugin_version and plugin_summary from a manifest, plugin_stem, the name as part of a
# file's name, and plugin_folder, where the finished plugin lies under `output`.
macro(graft_plugin_facts manifest output)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${manifest}")
  foreach(key name version summary)
    graft_manifest_value(plugin_${key} "${manifest}" ${key})
  endforeach()
  string(REPLACE "-" "_" plugin_stem "${plugin_name}")
  if("${output}" STREQUAL "")
    set(plugin_folder "${GRAFT_PLUGIN_OUTPUT}/${plugin_name}")
  else()
    set(plugin_folder "${output}/${plugin_name}")
  endif()
endmacro()

# Links a library as lib<stem>.so into a plugin's folder, and puts the manifest beside it.
function(graft_link_plugin target stem folder)
  # nodelete: sessions and options keep pointers into the library, in no order that unloading could honour.
  target_link_options(${target} PRIVATE
    "LINKER:--version-script,${GRAFT_ABI_DIR}/cmake/graft.map" LINKER:--gc-sections
    ${GRAFT_HARDEN_LINK} LINKER:-z,nodelete ${GRAFT_SANITIZE_FLAGS})
  if(NOT GRAFT_SANITIZE)  # the sanitizers' runtime stays undefined until the program brings it
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc LINKER:-z,defs)
  endif()
  if(graft_portable_runtime)  # see Portable.cmake
    target_sources(${target} PRIVATE ${graft_portable_runtime})
  endif()
  set_target_properties(${target} PROPERTIES
    PREFIX lib OUTPUT_NAME "${stem}" SUFFIX .so
    LINK_DEPENDS "${GRAFT_ABI_DIR}/cmake/graft.map"
    LIBRARY_OUTPUT_DIRECTORY "${folder}")
  # Once a folder, whichever variants are made in it.
  string(MAKE_C_IDENTIFIER "${folder}" id)
  set(copy "graft-manifest${id}")
  if(NOT TARGET "${copy}")
    set(manifest "${CMAKE_CURRENT_SOURCE_DIR}/plugin.yaml")
    add_custom_command(OUTPUT "${folder}/plugin.yaml" DEPENDS "${manifest}"
      COMMAND ${CMAKE_COMMAND} -DFROM=${manifest} -DTO=${folder}/plugin.yaml -DARCH=${GRAFT_ARCH}
              -P "${GRAFT_ABI_DIR}/cmake/Manifest.cmake")
    add_custom_target("${copy}" DEPENDS "${folder}/plugin.yaml")
  endif()
  add_dependencies(${target} "${copy}")
endfunction()

function(graft_add_kernels target)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "graft_add_kernels(${target}): no SOURCES")
  endif()
  # Highway by a link of its own, so that no other header of the folder it is installed in is found with
  # it: a cross compiler must not see this machine's.
  find_path(HIGHWAY_INCLUDE hwy/highway.h REQUIRED
            DOC "folder that holds hwy/highway.h (apt: libhwy-dev)")
  set(include "${CMAKE_BINARY_DIR}/highway")
  file(MAKE_DIRECTORY "${include}")
  file(CREATE_LINK "${HIGHWAY_INCLUDE}/hwy" "${include}/hwy" SYMBOLIC)

  add_library(${target} OBJECT ${arg_SOURCES})
  target_link_libraries(${target} PUBLIC graft_kit ${arg_LIBRARIES})
  target_include_directories(${target} PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
  target_include_directories(${target} SYSTEM PRIVATE "${include}")
  if(GRAFT_WITHOUT_ISAS)
    string(REPLACE ";" "|" without "${GRAFT_WITHOUT_ISAS}")
    target_compile_definitions(${target} PRIVATE "GRAFT_WITHOUT_ISAS=${without}")
  endif()
  graft_compile(${target})
endfunction()

function(graft_add_plugin target)
  cmake_parse_arguments(arg "" "OUTPUT" "SOURCES;KERNELS;LIBRARIES;INCLUDES;ISA" ${ARGN})
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "graft_add_plugin(${target}): no SOURCES")
  endif()
  graft_plugin_facts("${CMAKE_CURRENT_SOURCE_DIR}/plugin.yaml" "${arg_OUTPUT}")
  if(GRAFT_ARCH STREQUAL arm64)
    set(arg_ISA armv8-a)
  else()
    if(arg_KERNELS AND NOT arg_ISA)
      set(arg_ISA sse4.2 avx2 avx512f)
    endif()
    list(PREPEND arg_ISA x86-64)
  endif()
  list(JOIN arg_ISA "," isa)

  add_library(${target} MODULE ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE graft_kit ${arg_KERNELS} ${arg_LIBRARIES})
  target_include_directories(${target} SYSTEM PRIVATE ${arg_INCLUDES})
  target_compile_definitions(${target} PRIVATE
    GRAFT_PLUGIN_NAME="${plugin_name}" GRAFT_PLUGIN_VERSION="${plugin_version}"
    GRAFT_PLUGIN_SUMMARY="${plugin_summary}"
    GRAFT_PLUGIN_DEVICE="cpu" GRAFT_PLUGIN_ISA="${isa}")
  graft_compile(${target} -fno-trapping-math $<$<BOOL:${GRAFT_SANITIZE}>:-Og>)
  graft_link_plugin(${target} "${plugin_stem}" "${plugin_folder}")
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/GraftCuda.cmake")
