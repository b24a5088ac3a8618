#include "common/build_id.hpp"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace native {
namespace {

constexpr char kOwner[] = "GNU";

struct Search {
  uintptr_t address;  // of this code
  std::string id;
};

uint64_t padded(uint64_t size) { return (size + 3) / 4 * 4; }

/// Return the build id among the notes of a segment; empty if they have none.
std::string id_in(const char* notes, uint64_t size) {
  for (uint64_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const uint64_t name = at + sizeof note, content = name + padded(note.n_namesz);
    if (content + note.n_descsz > size) break;
    const bool is_id = note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof kOwner;
    if (is_id && std::memcmp(notes + name, kOwner, sizeof kOwner) == 0)
      return std::string(notes + content, note.n_descsz);
    at = content + padded(note.n_descsz);
  }
  return "";
}

bool holds(const dl_phdr_info& object, uintptr_t address) {
  for (int n = 0; n < object.dlpi_phnum; ++n) {
    const ElfW(Phdr)& segment = object.dlpi_phdr[n];
    const uintptr_t begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= begin && address - begin < segment.p_memsz) return true;
  }
  return false;
}

int visit(dl_phdr_info* object, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  if (!holds(*object, search.address)) return 0;
  for (int n = 0; n < object->dlpi_phnum && search.id.empty(); ++n) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[n];
    if (segment.p_type == PT_NOTE)
      search.id = id_in(reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz);
  }
  return 1;
}

}  // namespace

std::string build_id() {
  Search search{reinterpret_cast<uintptr_t>(&build_id), {}};
  dl_iterate_phdr(visit, &search);
  return search.id;
}

}  // namespace native
