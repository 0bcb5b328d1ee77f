graft_add_emulated_plugin(step-tail SOURCES cuda/step_tail_cuda.cu TEST cuda/emulated_test.cc
  INCLUDES "${CMAKE_SOURCE_DIR}/plugins/ngram-block")
