// Package cuda checks the CUDA variants, without a GPU: that every CUDA variant holds machine code for the
// devices it names and code for those to come, that the compiler stayed within the budgets of
// kernels-cuda/budgets.txt, that a library exports and links what a plugin may, and that it says the right words
// where no driver, an old one, or no device of use is.
//
// What reads fat binaries, reports and budgets is tested by go test; the checks of the libraries themselves have
// the build tag cuda, since they need nvcc:
//
//	make cuda-test
package cuda
