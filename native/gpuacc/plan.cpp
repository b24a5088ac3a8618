#include "gpuacc/plan.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "gpuacc/source.hpp"

namespace gpuacc {
namespace {

constexpr int64_t kMostElements = std::numeric_limits<int32_t>::max();

int64_t rounded_up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

/// Copies bytes to a constant. `from` may be null if there are none.
std::function<void(char*)> copier(const void* from, uint64_t bytes) {
  return [=](char* to) { std::copy_n(static_cast<const char*>(from), bytes, to); };
}

}  // namespace

void collapse(Shape& shape, std::vector<Shape*> strides) {
  Shape merged;
  std::vector<Shape> kept_strides(strides.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    bool merges = !merged.empty();
    for (size_t n = 0; merges && n < strides.size(); ++n)
      merges = kept_strides[n].back() == (*strides[n])[axis] * shape[axis];
    if (merges) {
      merged.back() *= shape[axis];
      for (size_t n = 0; n < strides.size(); ++n) kept_strides[n].back() = (*strides[n])[axis];
      continue;
    }
    merged.push_back(shape[axis]);
    for (size_t n = 0; n < strides.size(); ++n) kept_strides[n].push_back((*strides[n])[axis]);
  }
  shape = merged;
  for (size_t n = 0; n < strides.size(); ++n) *strides[n] = kept_strides[n];
}

int64_t product(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

Shape broadcast_strides(const Shape& shape, const Shape& to) {
  Shape own = strides_of(shape), strides(to.size(), 0);
  const size_t ahead = to.size() - shape.size();
  for (size_t axis = 0; axis < shape.size(); ++axis) strides[ahead + axis] = shape[axis] == 1 ? 0 : own[axis];
  return strides;
}

uint64_t bytes_of(const Value& value, const Profile& profile) {
  uint64_t size = ipr::item_size(value.dtype);
  if (value.layout == Layout::plain) return uint64_t(value.elements()) * size;
  const Image image(value.shape, value.channels_last);
  return uint64_t(image.n * rounded_up(image.c, profile.block) * image.h * image.w) * size;
}

Argument reads(int buffer) {
  Argument argument;
  argument.buffer = buffer;
  return argument;
}

Argument reads(const Value& value) { return reads(value.buffer); }

Argument writes(const Value& value) {
  Argument argument = reads(value);
  argument.written = true;
  return argument;
}

template <class T>
Argument of_bytes(const T& value) {
  Argument argument;
  argument.size = sizeof value;
  std::memcpy(argument.bytes.data(), &value, sizeof value);
  return argument;
}

Argument number(int64_t value) { return of_bytes(int32_t(value)); }
Argument real(double value) { return of_bytes(float(value)); }
Argument wide(double value) { return of_bytes(value); }

Argument element(uint64_t bits, uint64_t bytes) {
  Argument argument = of_bytes(bits);
  argument.size = uint32_t(bytes);
  return argument;
}

Argument numbers(const std::vector<int64_t>& values, int64_t rest) {
  std::array<int32_t, 8> all;
  all.fill(int32_t(rest));
  for (size_t n = 0; n < values.size() && n < 8; ++n) all[n] = int32_t(values[n]);
  return of_bytes(all);
}

Plan::Plan(const ipr::Graph& graph, Device& device, const Profile& profile, Choices choices)
    : graph(graph), device(device), profile(profile), choices(std::move(choices)), lowered_before(graph.size()),
      readers(graph.tensor_count()), only_reader(graph.tensor_count(), -1), values_(graph.tensor_count()) {
  for (ipr::Layer reader : graph)
    for (int64_t tensor : reader.inputs())
      if (tensor >= 0) ++readers[size_t(tensor)], only_reader[size_t(tensor)] = reader.index();
  for (int64_t tensor : graph.outputs()) ++readers[size_t(tensor)];
  for (size_t n = 0; n < graph.inputs().size(); ++n) {
    const ipr::TensorInfo info = graph.tensor(graph.inputs()[n]);
    Buffer buffer;
    buffer.kind = Buffer::input;
    buffer.position = int(n);
    buffer.bytes = info.bytes();
    Value value;
    value.dtype = info.dtype();
    value.shape = shape_of(info);
    value.buffer = add(buffer);
    set(graph.inputs()[n], value);
  }
}

int Plan::add(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return int(buffers.size()) - 1;
}

void Plan::set(int64_t tensor, const Value& value) {
  Forms& forms = values_[size_t(tensor)];
  const bool blocked = value.layout == Layout::blocked;
  if (!forms.plain && !forms.blocked) forms.computed_blocked = blocked;
  (blocked ? forms.blocked : forms.plain) = value;
}

Value Plan::tensor_constant(const ipr::TensorInfo& info) {
  Value value;
  value.dtype = info.dtype();
  value.shape = shape_of(info);
  value.buffer = constant(key(info, "plain"), info.bytes(), copier(info.constant().data, info.bytes()));
  return value;
}

Value Plan::plain(int64_t tensor) {
  Forms& forms = values_[size_t(tensor)];
  if (!forms.plain && graph.tensor(tensor).is_constant()) forms.plain = tensor_constant(graph.tensor(tensor));
  if (!forms.plain && forms.blocked) forms.plain = unblocked(forms.blocked);
  if (!forms.plain) throw ipr::Error("a tensor is read before it is computed");
  return forms.plain;
}

bool Plan::is_computed(int64_t tensor) const {
  const Forms& forms = values_[size_t(tensor)];
  return forms.plain || forms.blocked;
}

bool Plan::is_blocked(int64_t tensor) const { return bool(values_[size_t(tensor)].blocked); }

Value Plan::as_computed(int64_t tensor) {
  Forms& forms = values_[size_t(tensor)];
  return forms.computed_blocked ? forms.blocked : plain(tensor);
}

Value Plan::blocked(int64_t tensor, bool channels_last) {
  Forms& forms = values_[size_t(tensor)];
  if (forms.blocked && forms.blocked.channels_last == channels_last) return forms.blocked;
  Value from = plain(tensor);
  from.channels_last = channels_last;
  return forms.blocked = as_blocks(from);
}

Value Plan::create(int32_t dtype, const Shape& shape, Layout layout, bool channels_last) {
  Value value;
  value.dtype = dtype;
  value.shape = shape;
  value.layout = layout;
  value.channels_last = channels_last;
  Buffer buffer;
  buffer.bytes = bytes_of(value, profile);
  const uint64_t elements = buffer.bytes / std::max<uint64_t>(ipr::item_size(dtype), 1);
  if (elements > uint64_t(kMostElements) || buffer.bytes > device.info.largest)
    throw ipr::Error("a tensor of " + std::to_string(buffer.bytes) + " bytes is too large for the device",
                     IPR_UNSUPPORTED, IPR_ITEM_LAYER, layer);
  value.buffer = add(buffer);
  return value;
}

int Plan::constant(const std::string& key, uint64_t bytes, const std::function<void(char*)>& make) {
  auto create_memory = [&] {
    std::vector<char> content(size_t(std::max<uint64_t>(bytes, 1)));
    make(content.data());
    return device.constant(content.data(), content.size());
  };
  Buffer buffer;
  buffer.kind = Buffer::constant;
  buffer.bytes = bytes;
  buffer.memory = key.empty() ? std::make_shared<Memory>(create_memory()) : device.shared(key, create_memory);
  return add(buffer);
}

std::string Plan::key(const ipr::TensorInfo& info, const std::string& packing) const {
  if (!info.is_constant() || !info.constant().sha256) return "";
  std::string text(reinterpret_cast<const char*>(info.constant().sha256), 32);
  text += packing + " " + std::to_string(info.dtype());
  for (int64_t size : info.shape()) text += " " + std::to_string(size);
  return text;
}

int Plan::floats(const std::vector<float>& values) {
  return constant("", values.size() * 4, copier(values.data(), values.size() * 4));
}

int Plan::integers(const std::vector<int32_t>& values) {
  return constant("", values.size() * 4, copier(values.data(), values.size() * 4));
}

void Plan::launch(std::string name, std::string source, std::vector<Argument> arguments, std::array<int64_t, 3> global,
                  std::array<int64_t, 3> local) {
  if (global[0] <= 0 || global[1] <= 0 || global[2] <= 0) return;
  Launch launch;
  launch.name = std::move(name);
  if (layer >= 0) launch.name += " " + std::string(graph.layer(size_t(layer)).name());
  launch.source = std::move(source);
  launch.arguments = std::move(arguments);
  launch.layer = layer;
  for (size_t n = 0; n < 3; ++n) {
    launch.local[n] = size_t(local[n]);
    launch.global[n] = size_t(rounded_up(global[n], local[n]));
  }
  for (const Argument& argument : launch.arguments) {
    if (argument.buffer < 0) continue;
    Buffer& used = buffers[size_t(argument.buffer)];
    if (used.first < 0) used.first = int(launches.size());
    used.last = int(launches.size());
  }
  launches.push_back(std::move(launch));
}

void Plan::launch_elements(std::string name, std::string source, std::vector<Argument> arguments, int64_t count) {
  launch(std::move(name), std::move(source), std::move(arguments), {count, 1, 1}, {profile.group, 1, 1});
}

void Plan::copy(const Value& from, int64_t x0, const Shape& by_from, const Value& to, int64_t y0, const Shape& by_to,
                const Shape& shape) {
  Shape sizes = shape, sx = by_from, sy = by_to;
  collapse(sizes, {&sx, &sy});
  std::string code;
  for (size_t axis = sizes.size(); axis-- > 0;) {
    const std::string s = ".s" + std::to_string(axis);
    code += axis == 0
                ? "  xi += r * sx.s0; yi += r * sy.s0;\n"
                : "  { int c = r % d" + s + "; r /= d" + s + "; xi += c * sx" + s + "; yi += c * sy" + s + "; }\n";
  }
  Template source(R"(
kernel void k(global const $T* restrict x, global $T* restrict y, int n, int x0, int y0, int8 d, int8 sx, int8 sy) {
  int r = get_global_id(0), xi = x0, yi = y0;
  if (r >= n) return;
$CODE  y[yi] = x[xi];
}
)");
  source.set("T", bits_type(ipr::item_size(from.dtype))).set("CODE", code);
  launch_elements("copy", source.text(),
                  {reads(from), writes(to), number(product(sizes)), number(x0), number(y0), numbers(sizes, 1),
                   numbers(sx, 0), numbers(sy, 0)},
                  product(sizes));
}

Value Plan::strided(const Value& value, int64_t offset, const Shape& strides, const Shape& shape) {
  if (offset == 0 && strides == strides_of(shape) && product(shape) == value.elements()) return reshaped(value, shape);
  Value copied = create(value.dtype, shape);
  copy(value, offset, strides, copied, 0, strides_of(shape), shape);
  return copied;
}

void Plan::fill(const Value& value, uint64_t bits) {
  Template source(R"(
kernel void k(global $T* restrict y, int n, $T value) {
  int i = get_global_id(0);
  if (i < n) y[i] = value;
}
)");
  const uint64_t size = ipr::item_size(value.dtype);
  source.set("T", bits_type(size));
  launch_elements("fill", source.text(), {writes(value), number(value.elements()), element(bits, size)},
                  value.elements());
}

Value Plan::reshaped(Value value, const Shape& shape) {
  value.shape = shape;
  value.channels_last = false;
  return value;
}

void Plan::check_values(const Value& value, const ValueCheck& wanted) {
  if (status < 0) {
    Buffer buffer;
    buffer.kind = Buffer::status;
    buffer.bytes = uint64_t(kMostChecks) * (4 + 8);
    status = add(buffer);
  }
  if (int64_t(checks.size()) == kMostChecks) throw ipr::Error("too many operands have to be checked", IPR_UNSUPPORTED);
  Template source(R"(
kernel void k(global const $T* restrict x, global int* restrict wrong, int n, int slot, int low, int high, int first,
              int step) {
  int i = get_global_id(0);
  const int at = first + i * step;
  if (i < n && (x[at] < low || x[at] > high)) atomic_min(wrong + slot, at);
}
)");
  source.set("T", storage(value.dtype));
  launch_elements("check", source.text(),
                  {reads(value), reads(status), number(value.elements() / wanted.step), number(int64_t(checks.size())),
                   number(wanted.lowest), number(wanted.highest), number(wanted.first), number(wanted.step)},
                  value.elements() / wanted.step);
  Template reader(R"(
kernel void k(global const $T* restrict x, global int* restrict wrong, int slot, int most) {
  if (wrong[slot] != INT_MAX) ((global long*)(wrong + most))[slot] = x[wrong[slot]];
}
)");
  launch("wrong value", reader.set("T", storage(value.dtype)).text(),
         {reads(value), reads(status), number(int64_t(checks.size())), number(kMostChecks)}, {1, 1, 1});
  checks.push_back(wanted);
}

Value Plan::as_blocks(const Value& value) {
  const Image image(value.shape, value.channels_last);
  Value blocked = create(value.dtype, value.shape, Layout::blocked, value.channels_last);
  const int64_t blocks = (image.c + profile.block - 1) / profile.block, pixels = image.h * image.w;
  Template source(R"(
kernel void k(global const $T* restrict x, global $T* restrict y, int n, int C, int blocks, int pixels, int byc, int byp) {
  int i = get_global_id(0);
  if (i >= n) return;
  int p = i % pixels, r = i / pixels, first = r % blocks * $B;
  global const $T* from = x + (r / blocks * pixels) * C + first * byc + p * byp;
  global $T* to = y + i * $B;
  for (int c = 0; c < $B; ++c) to[c] = first + c < C ? from[c * byc] : ($T)0;
}
)");
  source.set("T", bits_type(ipr::item_size(value.dtype))).set("B", profile.block);
  const int64_t count = image.n * blocks * pixels;
  launch_elements("to blocks", source.text(),
                  {reads(value), writes(blocked), number(count), number(image.c), number(blocks), number(pixels),
                   number(image.by_c), number(image.by_x)},
                  count);
  return blocked;
}

Value Plan::unblocked(const Value& value) {
  const Image image(value.shape, value.channels_last);
  Value plain = create(value.dtype, value.shape);
  const int64_t blocks = (image.c + profile.block - 1) / profile.block, pixels = image.h * image.w;
  Template source(R"(
kernel void k(global const $T* restrict x, global $T* restrict y, int n, int C, int blocks, int pixels) {
  int i = get_global_id(0);
  if (i >= n) return;
  int c = $CHANNEL, p = $PIXEL, image = i / C / pixels;
  y[i] = x[((image * blocks + c / $B) * pixels + p) * $B + c % $B];
}
)");
  source.set("T", bits_type(ipr::item_size(value.dtype))).set("B", profile.block);
  source.set("CHANNEL", value.channels_last ? "i % C" : "i / pixels % C");
  source.set("PIXEL", value.channels_last ? "i / C % pixels" : "i % pixels");
  launch_elements(
      "from blocks", source.text(),
      {reads(value), writes(plain), number(value.elements()), number(image.c), number(blocks), number(pixels)},
      value.elements());
  return plain;
}

void Plan::finish() {
  std::map<int64_t, int64_t> producers;
  for (ipr::Layer each : graph)
    for (int64_t tensor : each.outputs()) producers[tensor] = each.index();
  for (size_t n = 0; n < graph.outputs().size(); ++n) {
    auto producer = producers.find(graph.outputs()[n]);
    layer = producer == producers.end() ? -1 : producer->second;
    Value value = plain(graph.outputs()[n]);
    if (buffers[size_t(value.buffer)].kind != Buffer::arena) {
      Value copied = create(value.dtype, value.shape);
      copy(value, 0, {1}, copied, 0, {1}, {value.elements()});
      value = copied;
    }
    Buffer& buffer = buffers[size_t(value.buffer)];
    buffer.kind = Buffer::output;
    buffer.position = int(n);
  }
  layer = -1;
  place();
}

void Plan::place() {
  std::vector<size_t> order;
  for (size_t n = 0; n < buffers.size(); ++n)
    if (buffers[n].kind == Buffer::arena && buffers[n].first >= 0) order.push_back(n);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return buffers[a].first < buffers[b].first; });
  std::vector<size_t> live;
  const uint64_t unit = device.info.alignment;
  auto padded = [&](const Buffer& buffer) { return std::max<uint64_t>((buffer.bytes + unit - 1) / unit * unit, unit); };
  for (size_t now : order) {
    Buffer& own = buffers[now];
    live.erase(std::remove_if(live.begin(), live.end(), [&](size_t n) { return buffers[n].last < own.first; }),
               live.end());
    std::sort(live.begin(), live.end(), [&](size_t a, size_t b) { return buffers[a].offset < buffers[b].offset; });
    for (size_t n : live) {
      if (buffers[n].offset >= own.offset + padded(own)) break;
      own.offset = std::max(own.offset, buffers[n].offset + padded(buffers[n]));
    }
    live.push_back(now);
    arena_bytes = std::max(arena_bytes, own.offset + padded(own));
  }
}

}  // namespace gpuacc
