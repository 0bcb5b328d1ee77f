graft_add_emulated_plugin(slim-attention
  SOURCES cuda/slim_attention_cuda.cu cuda/key_attention_cuda.cu ../row-attention/validate.cc
  TEST cuda/emulated_test.cc tests/slim_problem.cc
  INCLUDES "${CMAKE_SOURCE_DIR}/plugins/row-attention" "${CMAKE_SOURCE_DIR}/plugins/flash-decode")
target_link_libraries(slim_attention_emulated PRIVATE row_attention_fold)
target_link_libraries(slim_attention_cuda_tests PRIVATE row_attention_kernel row_attention_fold flash_decode_kernel)
