// What a plug-in for Arm NN looks like from outside: the same three functions, the same version, and a factory for a
// C++ object, which begins with a pointer to its virtual functions and not with an ipr_backend.

#include <cstdint>
#include <memory>
#include <string>

namespace armnn {

class BackendId : public std::string {
  using std::string::string;
};

class IBackendInternal {
 public:
  virtual ~IBackendInternal() = default;
  virtual const BackendId& GetId() const = 0;
  virtual bool HasCapability(const std::string&) const { return false; }
};

using IBackendInternalUniquePtr = std::unique_ptr<IBackendInternal>;

}  // namespace armnn

namespace {

class GpuAcc : public armnn::IBackendInternal {
 public:
  const armnn::BackendId& GetId() const override {
    static const armnn::BackendId id{"GpuAcc"};
    return id;
  }
};

}  // namespace

extern "C" {
const char* GetBackendId() { return "GpuAcc"; }

void GetVersion(uint32_t* outMajor, uint32_t* outMinor) {
  *outMajor = 1;
  *outMinor = 0;
}

void* BackendFactory() { return armnn::IBackendInternalUniquePtr(new GpuAcc()).release(); }
}
