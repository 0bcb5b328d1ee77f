graft_add_emulated_plugin(fused-gelu SOURCES cuda/fused_gelu_cuda.cu TEST tests/cuda_test.cc)
