# Runs nvcc, and separates what ptxas reports from what a reader must see.
#
#   cmake -DREPORT=file -P compile_cuda.cmake -- nvcc ARGUMENTS...
#
# REPORT gets the lines of "ptxas info" and the resources that they introduce, in order, and the seconds that it took,
# once the compilation succeeded; warnings and errors are printed.
set(command "")
set(past FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(past)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(past TRUE)
  endif()
endforeach()

string(TIMESTAMP start "%s")
execute_process(COMMAND ${command} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
string(TIMESTAMP end "%s")
math(EXPR seconds "${end} - ${start}")

# Lines become a list: what would split or join its items is put aside.
string(REPLACE "[" "<:" err "${out}\n${err}")
string(REPLACE "]" ":>" err "${err}")
string(REPLACE ";" "<,>" err "${err}")
string(REPLACE "\n" ";" err "${err}")
set(report "")
set(rest "")
foreach(line IN LISTS err)
  if(line MATCHES "^ptxas info|^ +[0-9]+ bytes stack frame")
    string(APPEND report "${line}\n")
  elseif(NOT line STREQUAL "")
    string(APPEND rest "${line}\n")
  endif()
endforeach()
foreach(text IN ITEMS report rest)
  string(REPLACE "<:" "[" ${text} "${${text}}")
  string(REPLACE ":>" "]" ${text} "${${text}}")
  string(REPLACE "<,>" ";" ${text} "${${text}}")
endforeach()
if(rest)
  message(NOTICE "${rest}")
endif()
if(NOT code EQUAL 0)
  message(FATAL_ERROR "nvcc: exit status ${code}")
endif()
file(WRITE "${REPORT}" "${report}compiled in ${seconds} s\n")
