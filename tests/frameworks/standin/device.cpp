// A device for tests where there is no GPU: memory of its own that the CPU may not touch.
//
// Its memory is mapped without any access but while a copy runs, so that code which takes a device's
// pointer for ordinary memory dies here as it would with CUDA.  Every operation is torch's fall-back
// to the CPU.  As with CUDA, `Module.to` keeps its parameters (_has_compatible_shallow_copy_type).

#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;
constexpr size_t kPage = 4096;

std::recursive_mutex mutex;
std::map<void*, size_t> blocks;
size_t in_use = 0;
size_t peak = 0;
size_t limit = SIZE_MAX;
std::atomic<bool> initialized{false};

size_t rounded(size_t size) { return (size + kPage - 1) / kPage * kPage; }

void release(void* data) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  auto found = blocks.find(data);
  if (found == blocks.end()) return;
  in_use -= found->second;
  munmap(data, found->second);
  blocks.erase(found);
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    initialized = true;
    const c10::Device device(kDevice, 0);
    if (size == 0) return {nullptr, nullptr, &release, device};
    const size_t whole = rounded(size);
    TORCH_CHECK_WITH(
        OutOfMemoryError, in_use + whole <= limit, "the stand-in device is out of memory: tried to "
        "allocate ", size, " bytes, ", limit - in_use, " are free");
    void* data = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(data != MAP_FAILED, "no memory could be mapped");
    blocks[data] = whole;
    in_use += whole;
    peak = std::max(peak, in_use);
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override;
};

Allocator allocator;

// Lets the CPU reach one tensor's memory while it lives.
struct Opened {
  explicit Opened(const void* base) {
    auto found = base ? blocks.find(const_cast<void*>(base)) : blocks.end();
    if (found == blocks.end()) return;
    data = found->first;
    size = found->second;
    mprotect(data, size, PROT_READ | PROT_WRITE);
  }
  ~Opened() {
    if (data) mprotect(data, size, PROT_NONE);
  }
  void* data = nullptr;
  size_t size = 0;
};

void Allocator::copy_data(void* to, const void* from, size_t count) const {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const Opened one(to), two(from);
  std::memcpy(to, from, count);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return c10::Device(kDevice, 0); }
  c10::Device getDevice() const override { return c10::Device(kDevice, 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    auto fresh = allocator.allocate(size);
    const size_t keep = std::min(size, storage.nbytes());
    if (keep) allocator.copy_data(fresh.get(), storage.data(), keep);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(fresh));
    storage.unsafeGetStorageImpl()->set_nbytes(size);
  }
};

Hooks hooks;

at::Tensor empty(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(
      size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the CPU.  Its pointer is only followed while it is Opened.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  auto options = at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU);
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  auto* data = static_cast<char*>(const_cast<void*>(tensor.storage().data())) +
      tensor.storage_offset() * tensor.element_size();
  return at::from_blob(data, tensor.sizes(), tensor.strides(), options);
}

const void* base(const at::Tensor& tensor) {
  return tensor.device().is_cpu() ? nullptr : tensor.storage().data();
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const c10::InferenceMode guard(false);
  const Opened one(base(self)), two(base(to) == base(self) ? nullptr : base(to));
  on_cpu(to).copy_(on_cpu(self));
  return to;
}

const at::Tensor& resize_(
    const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat>) {
  size_t count = self.storage_offset();
  size_t numel = 1;
  for (auto each : size) numel *= each;
  const size_t bytes = (count + numel) * self.element_size();
  if (bytes > self.storage().nbytes()) hooks.resizePrivateUse1Bytes(self.storage(), bytes);
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  if (to.sizes() != self.sizes()) resize_(to, self.sizes(), std::nullopt);
  return copy_from(self, to, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const Opened opened(base(self));
  return on_cpu(self).clone().item();
}

at::Tensor& set_storage(
    at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
    c10::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(size, stride);
  return self;
}

at::Tensor& set_whole(at::Tensor& self, at::Storage source) {
  const int64_t count = source.nbytes() / self.element_size();
  return set_storage(self, std::move(source), 0, {count}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(
      self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

bool compatible(const at::Tensor&, const at::Tensor&) { return true; }

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", resize_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("set_.source_Storage", set_whole);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("_has_compatible_shallow_copy_type", compatible);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

extern "C" {
void standin_register() {
  static Guard guard;
  c10::SetAllocator(kDevice, &allocator);
  c10::impl::device_guard_impl_registry[static_cast<size_t>(kDevice)].store(&guard);
  at::RegisterPrivateUse1HooksInterface(&hooks);
}
bool standin_initialized() { return initialized; }
size_t standin_in_use() { return in_use; }
size_t standin_peak() { return peak; }
void standin_reset_peak() { peak = in_use; }
void standin_limit(size_t bytes) { limit = bytes; }
}
