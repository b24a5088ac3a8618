#include "cpuacc/strided_copy.hpp"
#include "cpuacc/lower/cost_model.hpp"

#include <algorithm>
#include <cstring>

namespace cpuacc {
namespace {

struct Copy {
  const MoveKernels* kernels;
  Box box;
  int64_t rows, in_offset, out_offset;  // offsets in bytes

  bool is_contiguous() const {
    return box.from[box.rank - 1] == box.item_size && box.to[box.rank - 1] == box.item_size;
  }

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Copy& copy = step.as<Copy>();
    Range rows = split(copy.rows, part, parts);
    if (rows.first == rows.last) return;
    const char* in = run.at<char>(step.in[0]) + copy.in_offset;
    copy.kernels->copy(copy.box, in, run.at<char>(step.out[0]) + copy.out_offset, rows.first, rows.last);
  }
};

struct Fill {
  const MoveKernels* kernels;
  int64_t item_size, count;
  char value[8];

  static void run(const Step& step, const Run& run, int part, int parts) {
    const Fill& fill = step.as<Fill>();
    Range range = split(fill.count, part, parts, 64);
    char* out = run.at<char>(step.out[0]) + range.first * fill.item_size;
    fill.kernels->fill(out, fill.value, fill.item_size, range.last - range.first);
  }
};

struct Duplicate {
  uint64_t bytes;

  static void run(const Step& step, const Run& run, int part, int parts) {
    const char* in = run.at<char>(step.in[0]);
    char* out = run.at<char>(step.out[0]);
    if (in == out) return;
    const Range range = split(int64_t(step.as<Duplicate>().bytes), part, parts, 64);
    std::memcpy(out + range.first, in + range.first, size_t(range.last - range.first));
  }
};

/// Drop axes of one element, and merge axes that are contiguous in both tensors.
Axes merged(const Axes& axes) {
  Axes merged_axes;
  for (const Axis& axis : axes) {
    if (axis.extent == 1) continue;
    if (!merged_axes.empty() && merged_axes.back().from == axis.from * axis.extent &&
        merged_axes.back().to == axis.to * axis.extent) {
      merged_axes.back() = {merged_axes.back().extent * axis.extent, axis.from, axis.to};
      continue;
    }
    merged_axes.push_back(axis);
  }
  if (merged_axes.empty()) merged_axes.push_back({1, 1, 1});
  return merged_axes;
}

/// Make the axis along which the operand is contiguous the second to last, so that the copy is a transposition of
/// tiles.
void turn(Axes& axes) {
  if (axes.back().from == 1) return;
  for (size_t n = 0; n + 1 < axes.size(); ++n)
    if (axes[n].from == 1) {
      std::rotate(axes.begin() + long(n), axes.begin() + long(n) + 1, axes.end() - 1);
      return;
    }
}

/// Treat a short contiguous run, such as four bytes, as one element, if all other strides are multiples of it. Return
/// the number of elements of the run.
int64_t widen_elements(Axes& axes, uint64_t item_size, int64_t in_offset, int64_t out_offset) {
  const Axis run = axes.back();
  const bool small = run.extent * int64_t(item_size) == 2 || run.extent * int64_t(item_size) == 4 ||
                     run.extent * int64_t(item_size) == 8;
  if (axes.size() < 2 || run.from != 1 || run.to != 1 || run.extent == 1 || !small) return 1;
  if (in_offset % run.extent || out_offset % run.extent) return 1;
  for (size_t n = 0; n + 1 < axes.size(); ++n)
    if (axes[n].from % run.extent || axes[n].to % run.extent) return 1;
  axes.pop_back();
  for (Axis& axis : axes) axis.from /= run.extent, axis.to /= run.extent;
  return run.extent;
}

int64_t elements_of(const Axes& axes) {
  int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.extent;
  return count;
}

Copy copy_of(const MoveKernels& kernels, Axes axes, uint64_t item_size, int64_t in_offset, int64_t out_offset) {
  const bool empty = elements_of(axes) == 0;
  axes = merged(axes);
  const int64_t run = widen_elements(axes, item_size, in_offset, out_offset);
  item_size *= uint64_t(run), in_offset /= run, out_offset /= run;
  turn(axes);
  Copy copy{&kernels,
            {},
            empty ? 0 : elements_of(axes) / std::max<int64_t>(1, axes.back().extent),
            in_offset * int64_t(item_size),
            out_offset * int64_t(item_size)};
  copy.box.rank = int(axes.size());
  copy.box.item_size = int64_t(item_size);
  for (size_t n = 0; n < axes.size(); ++n) {
    copy.box.extent[n] = axes[n].extent;
    copy.box.from[n] = axes[n].from * int64_t(item_size);
    copy.box.to[n] = axes[n].to * int64_t(item_size);
  }
  return copy;
}

}  // namespace

Shape steps_of(const Shape& shape) {
  Shape steps(shape.size(), 1);
  for (size_t n = shape.size(); n-- > 1;) steps[n - 1] = steps[n] * shape[n];
  return steps;
}

Axes axes_of(const Shape& result) {
  Shape steps = steps_of(result);
  Axes axes;
  for (size_t n = 0; n < result.size(); ++n) axes.push_back({result[n], 0, steps[n]});
  return axes;
}

Step copy_step(Builder& builder, std::string name, Buffer in, Buffer out, Axes axes, uint64_t item_size,
               int64_t in_offset, int64_t out_offset) {
  const int64_t bytes = elements_of(axes) * int64_t(item_size);
  auto copy = std::make_shared<Copy>(
      copy_of(move_kernels_for(builder.settings.isa), std::move(axes), item_size, in_offset, out_offset));
  Step step;
  step.name = std::move(name);
  step.fn = &Copy::run;
  const double byte_ns = copy->is_contiguous() ? cost::kContiguousByteNs : cost::kStridedByteNs;
  step.max_parts =
      int(std::min<int64_t>(parts_for(builder.settings, double(bytes) * byte_ns), std::max<int64_t>(copy->rows, 1)));
  step.in = {in};
  step.out = {out};
  step.state = std::move(copy);
  return step;
}

void copy_view(const MoveKernels& kernels, const char* in, char* out, Axes axes, uint64_t item_size, int64_t in_offset,
               int64_t out_offset) {
  const Copy copy = copy_of(kernels, std::move(axes), item_size, in_offset, out_offset);
  if (copy.rows > 0) kernels.copy(copy.box, in + copy.in_offset, out + copy.out_offset, 0, copy.rows);
}

Step fill_step(Builder& builder, std::string name, Buffer out, const void* value, uint64_t item_size, int64_t count) {
  auto fill = std::make_shared<Fill>();
  fill->kernels = &move_kernels_for(builder.settings.isa);
  fill->item_size = int64_t(item_size);
  fill->count = count;
  std::memcpy(fill->value, value, item_size);
  Step step;
  step.name = std::move(name);
  step.fn = &Fill::run;
  step.max_parts = parts_for(builder.settings, double(count) * double(item_size) * cost::kContiguousByteNs);
  step.out = {out};
  step.state = std::move(fill);
  return step;
}

Step duplicate_step(Builder& builder, const Node& node) {
  auto state = std::make_shared<Duplicate>();
  state->bytes = builder.graph.out(node).bytes();
  Step step;
  step.name = "copy for " + node.name;
  step.fn = &Duplicate::run;
  step.max_parts = parts_for(builder.settings, double(state->bytes) * cost::kContiguousByteNs);
  step.in = {builder.buffer(node.inputs[0])};
  step.out = {builder.buffer(node.outputs[0])};
  step.in_place = 0;
  step.state = std::move(state);
  return step;
}

}  // namespace cpuacc
