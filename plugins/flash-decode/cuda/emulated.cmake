graft_add_emulated_plugin(flash-decode
  SOURCES cuda/flash_decode_cuda.cu validate.cc
  TEST cuda/emulated_test.cc tests/random_problem.cc tests/cached_problem.cc tests/reference.cc)
target_link_libraries(flash_decode_cuda_tests PRIVATE flash_decode_kernel)
