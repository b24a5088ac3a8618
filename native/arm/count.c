// A plugin of QEMU that counts executed instructions between two marks. A mark is the system call 424242, which Linux does
// not have. Its first argument is 1 to begin, or 2 to end and print the count; the second is a number that is printed:
//
//     COUNT 7 12345678
//
// With the argument blocks=N, the N translated blocks that executed most instructions follow, with their machine code.

#include <glib.h>
#include <inttypes.h>
#include <qemu-plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARK = 424242, BEGIN = 1, END = 2 };

typedef struct {
  uint64_t address, before;                    // executions before the mark
  struct qemu_plugin_scoreboard* executions;
  size_t size;
  uint32_t* code;
} Block;

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static struct qemu_plugin_scoreboard* board;  // one counter for each thread
static uint64_t before;
static guint shown;
static GPtrArray* blocks;
static GMutex lock;

static qemu_plugin_u64 executed(void) { return (qemu_plugin_u64){board, 0}; }

static qemu_plugin_u64 executions(const Block* block) { return (qemu_plugin_u64){block->executions, 0}; }

static void note_block(struct qemu_plugin_tb* translated, size_t size) {
  Block* block = g_new0(Block, 1);
  block->address = qemu_plugin_tb_vaddr(translated);
  block->size = size;
  block->code = g_new0(uint32_t, size);
  for (size_t n = 0; n < size; ++n)
    qemu_plugin_insn_data(qemu_plugin_tb_get_insn(translated, n), &block->code[n], sizeof(uint32_t));
  g_mutex_lock(&lock);
  g_ptr_array_add(blocks, block);
  g_mutex_unlock(&lock);
  block->executions = qemu_plugin_scoreboard_new(sizeof(uint64_t));
  qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(translated, QEMU_PLUGIN_INLINE_ADD_U64, executions(block), 1);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb* translated) {
  const size_t size = qemu_plugin_tb_n_insns(translated);
  qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(translated, QEMU_PLUGIN_INLINE_ADD_U64, executed(), size);
  if (shown) note_block(translated, size);
  (void)id;
}

static uint64_t since_mark(const Block* block) { return qemu_plugin_u64_sum(executions(block)) - block->before; }

static uint64_t instructions_of(const Block* block) { return since_mark(block) * block->size; }

static int by_instructions(const void* a, const void* b) {
  const uint64_t x = instructions_of(*(Block* const*)a), y = instructions_of(*(Block* const*)b);
  return x < y ? 1 : x > y ? -1 : 0;
}

static void begin(void) {
  g_mutex_lock(&lock);
  for (guint n = 0; n < blocks->len; ++n) {
    Block* block = blocks->pdata[n];
    block->before = qemu_plugin_u64_sum(executions(block));
  }
  g_mutex_unlock(&lock);
  before = qemu_plugin_u64_sum(executed());
}

static void end(uint64_t number) {
  fprintf(stderr, "COUNT %" PRIu64 " %" PRIu64 "\n", number, qemu_plugin_u64_sum(executed()) - before);
  g_mutex_lock(&lock);
  g_ptr_array_sort(blocks, by_instructions);
  for (guint n = 0; n < blocks->len && n < shown; ++n) {
    const Block* block = blocks->pdata[n];
    fprintf(stderr, "BLOCK %" PRIx64 " %" PRIu64, block->address, since_mark(block));
    for (size_t k = 0; k < block->size; ++k) fprintf(stderr, " %08x", block->code[k]);
    fputs("\n", stderr);
  }
  g_mutex_unlock(&lock);
  fflush(stderr);
}

static void on_system_call(qemu_plugin_id_t id, unsigned int thread, int64_t number, uint64_t kind, uint64_t value,
                           uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
  if (number == MARK && kind == BEGIN) begin();
  if (number == MARK && kind == END) end(value);
  (void)id, (void)thread, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int count, char** arguments) {
  for (int n = 0; n < count; ++n)
    if (strncmp(arguments[n], "blocks=", 7) == 0) shown = (guint)atoi(arguments[n] + 7);
  board = qemu_plugin_scoreboard_new(sizeof(uint64_t));
  blocks = g_ptr_array_new();
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  qemu_plugin_register_vcpu_syscall_cb(id, on_system_call);
  (void)info;
  return 0;
}
