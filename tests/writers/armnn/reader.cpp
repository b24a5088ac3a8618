// Reads an Arm NN file with Arm NN's own deserializer, and runs it on its reference backend.
//
// usage: reader MODEL [in ID FILE]... [out ID FILE]...
//
// Each input file has the bytes of the tensor with this binding id; the output files are written. The program prints
// the message of an exception and exits with status 1.

#include <armnn/ArmNN.hpp>
#include <armnnDeserializer/IDeserializer.hpp>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace {

std::vector<uint8_t> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void run(int argc, char** argv) {
  auto deserializer = armnnDeserializer::IDeserializer::Create();
  auto network = deserializer->CreateNetworkFromBinary(bytes_of(argv[1]));
  if (argc == 2) return;
  auto runtime = armnn::IRuntime::Create(armnn::IRuntime::CreationOptions());
  auto optimized = armnn::Optimize(*network, {armnn::Compute::CpuRef}, runtime->GetDeviceSpec());
  if (!optimized) throw armnn::RuntimeException("the reference backend does not run a layer");
  armnn::NetworkId id = 0;
  std::string message;
  if (runtime->LoadNetwork(id, std::move(optimized), message) != armnn::Status::Success) {
    throw armnn::RuntimeException(message);
  }
  std::vector<std::vector<uint8_t>> buffers;
  buffers.reserve(argc);
  armnn::InputTensors inputs;
  armnn::OutputTensors outputs;
  std::vector<std::pair<std::string, size_t>> results;
  for (int i = 2; i + 2 < argc; i += 3) {
    const int binding = std::atoi(argv[i + 1]);
    if (std::string(argv[i]) == "in") {
      buffers.push_back(bytes_of(argv[i + 2]));
      inputs.emplace_back(binding, armnn::ConstTensor(runtime->GetInputTensorInfo(id, binding), buffers.back().data()));
    } else {
      const auto info = runtime->GetOutputTensorInfo(id, binding);
      buffers.emplace_back(info.GetNumBytes());
      outputs.emplace_back(binding, armnn::Tensor(info, buffers.back().data()));
      results.emplace_back(argv[i + 2], buffers.size() - 1);
    }
  }
  runtime->EnqueueWorkload(id, inputs, outputs);
  for (const auto& [path, index] : results) {
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<char*>(buffers[index].data()), buffers[index].size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
    return 1;
  }
  return 0;
}
