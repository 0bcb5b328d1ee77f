#include <cmath>
#include <stdexcept>

#include "check.h"
#include "clock.h"
#include "inputs.cuh"
#include "limits.h"
#include "timing.h"

namespace graft {
namespace timing {

namespace {

// Enough blocks to fill the device, none without work.
cuda::LaunchShape Over(int64_t pieces, int32_t blocks_per_processor, int32_t processors) {
  cuda::LaunchShape shape;
  shape.threads = kThreads;
  shape.grid_x = std::min<int64_t>(std::max<int64_t>(cuda::CeilDivide(pieces, kThreads), 1),
                                   int64_t{processors} * blocks_per_processor);
  return shape;
}

cuda::LaunchShape Fill(int64_t count) { return Over(count, 16, 132); }

void Expect(cuda::Status status) {
  if (status != cuda::kOk) {
    throw std::runtime_error("a fill could not be launched: " + std::to_string(status));
  }
}

using gpu::Wide;

template <typename T>
std::string WrongNumber(const std::vector<unsigned char>& bytes, bool infinite) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T x;
    std::memcpy(static_cast<void*>(&x), &bytes[i], sizeof(T));
    const double value = Wide(x);
    if (std::isnan(value) || (std::isinf(value) && !infinite)) {
      return "output [" + std::to_string(i / sizeof(T)) + "] is " + std::to_string(value);
    }
  }
  return "";
}

// Both are within the type's tolerance of the truth.
template <typename T>
std::string Disagreement(const std::vector<unsigned char>& got,
                         const std::vector<unsigned char>& want, gpu::Tolerance tolerance) {
  for (size_t i = 0; i + sizeof(T) <= got.size(); i += sizeof(T)) {
    T x, y;
    std::memcpy(static_cast<void*>(&x), &got[i], sizeof(T));
    std::memcpy(static_cast<void*>(&y), &want[i], sizeof(T));
    const double g = Wide(x), w = Wide(y);
    if (g == w || std::abs(g - w) <= 2 * (tolerance.absolute + tolerance.relative * std::abs(w))) {
      continue;
    }
    return "output [" + std::to_string(i / sizeof(T)) + "] is " + std::to_string(g) +
           ", the reference gives " + std::to_string(w);
  }
  return "";
}

std::string Disagreement(cuda::Type type, const std::vector<unsigned char>& got,
                         const std::vector<unsigned char>& want) {
  const gpu::Tolerance tolerance = gpu::ToleranceOf(type);
  switch (type) {
    case cuda::Type::kFloat32:
      return Disagreement<float>(got, want, tolerance);
    case cuda::Type::kFloat16:
      return Disagreement<cuda::Half>(got, want, tolerance);
    default:
      return Disagreement<cuda::BFloat16>(got, want, tolerance);
  }
}

template <typename T>
std::string Unwritten(const std::vector<unsigned char>& bytes) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T x;
    std::memcpy(&x, &bytes[i], sizeof(T));
    if (x == -1) return "output [" + std::to_string(i / sizeof(T)) + "] was not written";
  }
  return "";
}

}  // namespace

Inputs::~Inputs() {
  for (const Block& block : blocks_) gpu::Release(block.memory);
}

void* Inputs::Add(int64_t bytes, Kind kind, cuda::Type type, int32_t element) {
  // What a kernel may read after an end that is no multiple of its vectors is memory still.
  const int64_t whole = cuda::RoundUp(std::max<int64_t>(bytes, 1), 256);
  void* memory = gpu::Reserve(whole);
  blocks_.push_back({memory, bytes, kind, type, element});
  bytes_ += whole;
  if (kind != kInput) gpu::SetBytes(memory, kind == kZeros ? 0 : 0xff, whole);
  return memory;
}

void Inputs::FillNormal(void* memory, cuda::Type type, int64_t count, double deviation) {
  const auto d = static_cast<float>(deviation);
  seed_ = BitsAt(seed_, 0);
  const cuda::Stream stream = gpu::WorkStream();
  switch (type) {
    case cuda::Type::kFloat32:
      return Expect(cuda::Launch(RandomNormal<float>, Fill(count), stream,
                                 static_cast<float*>(memory), count, d, seed_));
    case cuda::Type::kFloat16:
      return Expect(cuda::Launch(RandomNormal<cuda::Half>, Fill(count), stream,
                                 static_cast<cuda::Half*>(memory), count, d, seed_));
    default:
      return Expect(cuda::Launch(RandomNormal<cuda::BFloat16>, Fill(count), stream,
                                 static_cast<cuda::BFloat16*>(memory), count, d, seed_));
  }
}

void Inputs::FillIntegers(void* memory, size_t element, int64_t count, int64_t first,
                          int64_t last) {
  seed_ = BitsAt(seed_, 0);
  const auto many = static_cast<uint64_t>(last - first + 1);
  if (element == sizeof(int32_t)) {
    Expect(cuda::Launch(RandomIntegers<int32_t>, Fill(count), gpu::WorkStream(),
                        static_cast<int32_t*>(memory), count, first, many, seed_));
  } else {
    Expect(cuda::Launch(RandomIntegers<int64_t>, Fill(count), gpu::WorkStream(),
                        static_cast<int64_t*>(memory), count, first, many, seed_));
  }
}

void Inputs::FillFrom(void* memory, const void* from, int64_t bytes) {
  gpu::CopyBytes(memory, from, bytes, gpu::Direction::kToDevice);
}

void Inputs::Refer() const {
  for (const Reference& reference : references_) {
    const cuda::Status status = reference.launch(gpu::WorkStream());
    if (status != cuda::kOk) {
      throw std::runtime_error("the reference could not be launched: " + std::to_string(status));
    }
  }
}

std::string Inputs::Wrong() const {
  const auto host = [](const void* memory, int64_t bytes) {
    std::vector<unsigned char> copy(static_cast<size_t>(bytes));
    gpu::CopyBytes(copy.data(), memory, bytes, gpu::Direction::kToHost);
    return copy;
  };
  for (const Reference& reference : references_) {
    const int64_t bytes = reference.count * cuda::BytesOf(reference.type);
    const std::string wrong =
        Disagreement(reference.type, host(reference.out, bytes), host(reference.want, bytes));
    if (!wrong.empty()) return wrong;
  }
  for (const Block& block : blocks_) {
    if (block.kind < kOutputFinite) continue;
    const std::vector<unsigned char> bytes = host(block.memory, block.bytes);
    const bool infinite = block.kind == kOutputNumbers;
    std::string wrong;
    if (block.kind == kOutputIntegers) {
      wrong =
          block.element == sizeof(int32_t) ? Unwritten<int32_t>(bytes) : Unwritten<int64_t>(bytes);
    } else if (block.type == cuda::Type::kFloat32) {
      wrong = WrongNumber<float>(bytes, infinite);
    } else if (block.type == cuda::Type::kFloat16) {
      wrong = WrongNumber<cuda::Half>(bytes, infinite);
    } else {
      wrong = WrongNumber<cuda::BFloat16>(bytes, infinite);
    }
    if (!wrong.empty()) return wrong;
  }
  return "";
}

Case Bench::Reading(cuda::Type type, const Shape& shape, int64_t bytes) {
  Case reading{"reading", type, shape};
  reading.bytes = static_cast<double>(bytes);
  reading.make = [=](Inputs& in) -> Launch {
    const int64_t count = cuda::CeilDivide(bytes, 16);
    const auto* from = reinterpret_cast<const uint4*>(in.Normal<float>(4 * count));
    const cuda::LaunchShape grid = Over(cuda::CeilDivide(count, kPieces), 8, 132);
    auto* out = reinterpret_cast<uint32_t*>(in.Output<int32_t>(grid.grid_x * grid.threads));
    return
        [=](cuda::Stream stream) { return cuda::Launch(ReadOnce, grid, stream, from, count, out); };
  };
  return reading;
}

}  // namespace timing

namespace gpu {

double CopyBandwidth(const Facts& facts, int64_t bytes) {
  timing::Inputs memory(1);
  const int64_t count = bytes / 16;
  const auto* from = reinterpret_cast<const uint4*>(memory.Normal<float>(4 * count));
  auto* to = reinterpret_cast<uint4*>(memory.Scratch<float>(4 * count));
  const cuda::LaunchShape grid =
      timing::Over(cuda::CeilDivide(count, timing::kPieces), 8, facts.limits.multiprocessors);
  const auto own = [&](int64_t) {
    return cuda::Launch(timing::CopyOnce, grid, WorkStream(), to, from, count);
  };
  const auto runtime = [&](int64_t) {
    CopyWithin(to, from, 16 * count);
    return cuda::kOk;
  };
  double best = 0;
  for (const Work& copy : {Work(own), Work(runtime)}) {
    TimeEach(3, copy);
    std::vector<double> times = TimeEach(21, copy);
    std::nth_element(times.begin(), times.begin() + 10, times.end());
    if (times[10] > 0) best = std::max(best, 2 * 16 * static_cast<double>(count) / times[10] / 1e6);
  }
  return best;
}

}  // namespace gpu
}  // namespace graft
