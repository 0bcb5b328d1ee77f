graft_add_emulated_plugin(el-attention
  SOURCES cuda/el_attention_cuda.cu ../row-attention/validate.cc ../flash-decode/validate.cc
  TEST cuda/emulated_test.cc ../row-attention/tests/row_problem.cc ../row-attention/tests/row_reference.cc
  INCLUDES "${CMAKE_SOURCE_DIR}/plugins/row-attention" "${CMAKE_SOURCE_DIR}/plugins/row-attention/tests"
           "${CMAKE_SOURCE_DIR}/plugins/flash-decode")
target_link_libraries(el_attention_emulated PRIVATE row_attention_fold)
target_link_libraries(el_attention_cuda_tests PRIVATE row_attention_kernel flash_decode_kernel)
