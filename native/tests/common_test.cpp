// Memory and threads that the native backends share.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <string>
#include <thread>

#include "common/arena.hpp"
#include "common/build_id.hpp"
#include "common/cpu.hpp"
#include "common/pages.hpp"
#include "common/pool.hpp"

namespace native {
namespace {

TEST(Pages, keep_the_content_of_a_mapped_file_when_they_are_released) {
  char name[] = "/tmp/pages_test_XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  const std::string content(100'000, 'x');
  ASSERT_EQ(write(file, content.data(), content.size()), ssize_t(content.size()));
  void* mapped = mmap(nullptr, content.size(), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  const char* data = static_cast<const char*>(mapped);
  for (auto [begin, size] : {std::pair<int, int>{0, 100'000}, {1, 5'000}, {4'095, 2}, {10, 0}, {4'096, 8'192}}) {
    release_pages(data + begin, uint64_t(size));
    EXPECT_EQ(std::string(data, content.size()), content);
  }
  munmap(mapped, content.size());
}

TEST(Arena, gives_zeroed_memory_aligned_to_64_bytes) {
  Arena arena;
  for (uint64_t bytes : {0, 1, 63, 64, 65, 100'000, 5'000'000}) {
    char* memory = arena.take(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    for (uint64_t n = 0; n < bytes; ++n) ASSERT_EQ(memory[n], 0);
    std::memset(memory, 1, bytes);
  }
}

TEST(Arena, keeps_held_memory_after_its_own_end) {
  std::shared_ptr<const void> held;
  char* memory;
  {
    Arena arena;
    memory = arena.take(100);
    std::memset(memory, 7, 100);
    held = arena.hold();
  }
  EXPECT_EQ(memory[99], 7);
}

TEST(Arena, reuses_memory_that_is_given_back) {
  Arena arena;
  arena.take(64);
  const uint64_t total = arena.total();
  char* memory = arena.take(1000);
  std::memset(memory, 9, 1000);
  arena.give_back(memory, 1000);
  EXPECT_EQ(arena.total(), total);
  char* again = arena.take(1000);
  EXPECT_EQ(again, memory);
  EXPECT_EQ(again[999], 0);
}

struct Lender {
  std::map<void*, uint64_t> lent;
  bool is_empty = false;
  ipr_allocator table{sizeof(ipr_allocator), this, IPR_MEMORY_HOST, 0, &allocate, &free};

  static int32_t allocate(void* self, uint64_t size, uint64_t alignment, void** out) {
    Lender& lender = *static_cast<Lender*>(self);
    if (lender.is_empty) return IPR_OUT_OF_MEMORY;
    *out = ::operator new(size, std::align_val_t(alignment));
    std::memset(*out, 0xa5, size);
    lender.lent[*out] = size;
    return IPR_OK;
  }
  static void free(void* self, void* memory) {
    static_cast<Lender*>(self)->lent.erase(memory);
    ::operator delete(memory, std::align_val_t(64));
  }
};

TEST(Arena, takes_zeroed_chunks_from_an_allocator_and_frees_them) {
  Lender lender;
  {
    Arena arena(&lender.table);
    for (uint64_t bytes : {1, 100'000, 1'000'000}) {
      char* memory = arena.take(bytes);
      for (uint64_t n = 0; n < bytes; ++n) ASSERT_EQ(memory[n], 0);
    }
    EXPECT_EQ(lender.lent.size(), 3u);
    lender.is_empty = true;
    EXPECT_THROW(arena.take(10'000'000), std::bad_alloc);
  }
  EXPECT_TRUE(lender.lent.empty());
}

struct Count {
  std::atomic<int> parts[8] = {};
  static void part(void* self, int part, int) { ++static_cast<Count*>(self)->parts[part]; }
};

TEST(Pool, runs_every_part_once) {
  for (int threads : {1, 2, 4}) {
    Pool pool(threads);
    Pool::Lease lease(&pool);
    for (int parts = 1; parts <= 8; ++parts) {
      Count count;
      lease.run(&Count::part, &count, parts);
      for (int part = 0; part < 8; ++part) EXPECT_EQ(count.parts[part], part < parts ? 1 : 0);
    }
  }
}

TEST(Pool, runs_every_part_while_another_thread_holds_it) {
  Pool pool(2);
  Pool::Lease lease(&pool);
  std::thread([&] {
    Pool::Lease second(&pool);
    Count count;
    second.run(&Count::part, &count, 2);
    EXPECT_EQ(count.parts[0] + count.parts[1], 2);
  }).join();
}

TEST(Cpu, names_every_instruction_set) {
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512vnni, Isa::avx512bf16, Isa::amx, Isa::neon,
                  Isa::dotprod, Isa::i8mm})
    EXPECT_NE(isa_name(isa), nullptr);
  EXPECT_GT(l2_bytes(), 0);
}

TEST(Cpu, chooses_a_level_of_arm_only_if_the_system_reports_all_its_instructions) {
  constexpr uint64_t all = ~uint64_t{0}, dot_products = 1 << 7 | 1 << 8 | 1 << 12 | 1 << 20, matrices = 1 << 13;
  EXPECT_EQ(isa_of_arm(0, 0), Isa::neon);
  EXPECT_EQ(isa_of_arm(all, all), Isa::i8mm);
  EXPECT_EQ(isa_of_arm(dot_products, 0), Isa::dotprod);
  EXPECT_EQ(isa_of_arm(dot_products, matrices), Isa::i8mm);
  EXPECT_EQ(isa_of_arm(dot_products, all & ~matrices), Isa::dotprod);
  for (uint64_t bit : {1 << 7, 1 << 8, 1 << 12, 1 << 20}) EXPECT_EQ(isa_of_arm(all & ~bit, all), Isa::neon);
}

/// A folder with files, in place of those of Linux; deleted at the end.
class SystemFiles {
 public:
  SystemFiles() : root_(::testing::TempDir() + "/cores-" + std::to_string(getpid())) {}
  ~SystemFiles() { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(root_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::string path(const std::string& name = "") const { return root_ + (name.empty() ? "" : "/" + name); }

 private:
  std::string root_;
};

TEST(Cpu, orders_cores_by_their_capacities) {
  SystemFiles files;
  const int capacities[] = {400, 400, 1024, 800};
  for (int core = 0; core < 4; ++core)
    files.write("cpu" + std::to_string(core) + "/cpu_capacity", std::to_string(capacities[core]));
  EXPECT_EQ(by_capacity({0, 1, 2, 3}, files.path()), (std::vector<int>{2, 3, 0, 1}));
  EXPECT_EQ(by_capacity({3, 1, 0}, files.path()), (std::vector<int>{3, 1, 0}));
}

TEST(Cpu, leaves_the_order_of_cores_whose_capacities_are_not_reported) {
  EXPECT_EQ(by_capacity({3, 0, 2}, "/nonexistent"), (std::vector<int>{3, 0, 2}));
}

TEST(Cpu, identifies_the_processor_by_its_name_or_by_its_biggest_core) {
  SystemFiles files;
  files.write("x86", "processor\t: 0\nmodel name\t: A Processor @ 2 GHz");
  EXPECT_EQ(processor(files.path("x86"), files.path()), "A Processor @ 2 GHz");
  files.write("arm",
              "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\n"
              "processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b");
  EXPECT_EQ(processor(files.path("arm"), files.path()), "implementer 0x41 part 0xd05");
  files.write("cpu0/cpu_capacity", "446");
  files.write("cpu1/cpu_capacity", "1024");
  EXPECT_EQ(processor(files.path("arm"), files.path()), "implementer 0x41 part 0xd0b");
  files.write("other", "hart\t: 0\n");
  EXPECT_EQ(processor(files.path("other"), files.path()), "");
  EXPECT_EQ(processor(files.path("nonexistent"), files.path()), "");
}

TEST(Cpu, reads_the_size_of_the_second_level_cache) {
  SystemFiles files;
  EXPECT_EQ(l2_bytes_in(files.path(), 0), 0);
  files.write("cpu0/cache/index0/level", "1");
  files.write("cpu0/cache/index0/size", "64K");
  EXPECT_EQ(l2_bytes_in(files.path(), 0), 0);
  files.write("cpu0/cache/index2/level", "2");
  files.write("cpu0/cache/index2/size", "1024K");
  EXPECT_EQ(l2_bytes_in(files.path(), 0), 1024 * 1024);
  files.write("cpu1/cache/index1/level", "2");
  files.write("cpu1/cache/index1/size", "2M");
  EXPECT_EQ(l2_bytes_in(files.path(), 1), 2 * 1024 * 1024);
}

TEST(BuildId, is_the_digest_that_the_linker_wrote) {
  EXPECT_EQ(build_id().size(), 20u);
  EXPECT_EQ(build_id(), build_id());
}

}  // namespace
}  // namespace native
