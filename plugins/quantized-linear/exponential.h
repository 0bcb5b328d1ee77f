// Constants of the exponential and the error function as ONNX Runtime's kernels for AVX-512 have
// them: with the same ones, in the same order, bits are the same.
#ifndef GRAFT_PLUGINS_QUANTIZED_LINEAR_EXPONENTIAL_H_
#define GRAFT_PLUGINS_QUANTIZED_LINEAR_EXPONENTIAL_H_

namespace graft {
namespace quantized {

// exp(x) = 2^m p(x - m ln 2), with p in Horner's form, the highest power first.
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kMinusLn2High = -6.93145752e-1f;
constexpr float kMinusLn2Low = -1.42860677e-6f;
constexpr float kRound = 12582912.0f;  // added and subtracted, it leaves an integer
constexpr int kExpTerms = 7;

// That of a softmax, and where x ends.
constexpr float kSoftmaxExp[kExpTerms] = {
    0x1.694000p-10f, 0x1.125edcp-7f, 0x1.555b5ap-5f, 0x1.555450p-3f, 0x1.fffff6p-2f, 1.0f, 1.0f};
constexpr float kSoftmaxLeast = -103.9720840454f;

// That in an error function.
constexpr float kErfExp[kExpTerms] = {
    1.38319808e-3f, 8.37550033e-3f, 4.16689515e-2f, 1.66664466e-1f, 4.99999851e-1f, 1.0f, 1.0f};

// erf(x) is x + x p(x^2) up to the split, and 1 - exp(-(x + x p(x))) from there on, for x >= 0 and
// no more than the greatest.
constexpr float kErfSplit = 0.921875f;
constexpr float kErfGreatest = 3.925f;
constexpr int kErfSmallTerms = 6;
constexpr float kErfSmall[kErfSmallTerms] = {-5.99104969e-4f, 4.99339588e-3f,  -2.67667342e-2f,
                                             1.12818025e-1f,  -3.76124859e-1f, 1.28379151e-1f};
constexpr int kErfBigTerms = 7;
constexpr float kErfBig[kErfBigTerms] = {1.72948930e-5f,  -3.83208680e-4f, 3.88393435e-3f,
                                         -2.42545605e-2f, 1.06777847e-1f,  6.34846687e-1f,
                                         1.28717512e-1f};
constexpr float kInverseSqrt2 = 0.70710678118654752440f;

}  // namespace quantized
}  // namespace graft

#endif  // GRAFT_PLUGINS_QUANTIZED_LINEAR_EXPONENTIAL_H_
