# How everything is compiled: the language, the warnings, the sanitizers.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(WISP_SANITIZE "" CACHE STRING "Sanitizers, as a list: address;undefined or thread")
# Elsewhere other warnings exist, which nobody has met. The wheel asks for no less than `make build`:
# other flags would be other entries in the compiler's cache.
set(judge OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(judge ON)
endif()
if(NOT PROJECT_IS_TOP_LEVEL)
  set(judge OFF)
endif()
option(WISP_WERROR "Warnings are errors" ${judge})
option(WISP_PYTHON "Build the Python module; without it, only where nanobind is found" OFF)
option(WISP_FUZZ "Build the fuzz targets (clang only)" OFF)

find_program(WISP_CCACHE ccache)
if(WISP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the source tree: another clone on the same machine finds what this one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NOHASHDIR=true
      CCACHE_SLOPPINESS=time_macros,include_file_mtime,include_file_ctime ${WISP_CCACHE})
endif()

# Link privately: warnings are ours, never our users'.
add_library(wisp_warnings INTERFACE)
target_compile_options(wisp_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wcast-align -Wimplicit-fallthrough -Wextra-semi -Wundef
  $<$<BOOL:${WISP_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports std::string concatenation as overlapping copies (GCC bug 105651), and growing a
  # vector of bytes as writing past its end (GCC bug 105329).
  target_compile_options(wisp_warnings INTERFACE -Wduplicated-cond -Wlogical-op -Wno-restrict
    -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
  if(WISP_SANITIZE)
    # Instrumentation hides initialisations from the optimiser; the release build keeps the warning.
    target_compile_options(wisp_warnings INTERFACE -Wno-maybe-uninitialized)
  endif()
else()
  # Clang counts sign conversions under -Wconversion, GCC does not; GCC is the judge. It also reports what GCC's own
  # library uses of what it calls deprecated.
  target_compile_options(wisp_warnings INTERFACE -Wno-sign-conversion -Wno-deprecated-declarations)
endif()

if(WISP_SANITIZE)
  list(JOIN WISP_SANITIZE "," sanitizers)
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizers})
  if("address" IN_LIST WISP_SANITIZE AND NOT WISP_FUZZ)
    # Each check names its place in the source. In a program that can be loaded anywhere these are
    # millions of relocations, at every start, and tests start it thousands of times.
    add_link_options(-no-pie)
  endif()
endif()

# GCC 12.2 for aarch64 adds the masks of unrolled comparisons up as if each were 1 and not -1 (`cmge`, `addv`, nothing
# in between): positions of compact blocks were sought 2^32 groups too far. Found by tests of the codecs under qemu.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  add_compile_options(-fno-tree-slp-vectorize)
endif()

# Reading the same headers, and instantiating the same templates, is two thirds of what a file costs: done once
# for every `count` of them. More would make each change dear. A file with options of its own stays alone. The build
# that fuzzes compiles every file by itself and shows that each includes what it uses; its compile_commands.json is the
# one for tools that read sources.
function(wisp_compile_together target count)
  if(WISP_FUZZ)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${count})
  if(WISP_SANITIZE)
    # Made for one round of tests, not for one change: sixteen of a layer, or of a program's files.
    set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
      set(group together)
      if(source MATCHES "^src/(.*)/")
        string(MAKE_C_IDENTIFIER ${CMAKE_MATCH_1} group)
      endif()
      list(APPEND files_${group} ${source})
      list(LENGTH files_${group} count)
      math(EXPR part "(${count} - 1) / 16")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${part})
    endforeach()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # A source that another one includes counts as a header, in which types without linkage would be wrong.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# Full optimisation costs as much again as compiling: it goes to the folders of src/ named here. Under
# sanitizers it costs four times as much, so they get a little, and the rest nothing.
function(wisp_optimize target)
  get_target_property(hot ${target} SOURCES)
  list(JOIN ARGN "|" folders)
  list(FILTER hot INCLUDE REGEX "^src/(${folders})/")
  if(WISP_SANITIZE)
    set_source_files_properties(${hot} PROPERTIES COMPILE_OPTIONS -O1)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    set_source_files_properties(${hot} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  endif()
endfunction()
