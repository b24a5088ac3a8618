/* Where everything lies since version 1.0 of interposer/backend.h, on every 64-bit machine. Never to be changed; later
   versions append to structs, which the sizes here allow. */

#include <stddef.h>

#include "interposer/backend.h"

#define AT(type, member, offset) _Static_assert(offsetof(type, member) == (offset), #type "." #member)
#define SIZE(type, size) _Static_assert(sizeof(type) >= (size), #type)
#define FIXED(type, size) _Static_assert(sizeof(type) == (size), #type)

AT(ipr_string, data, 0);
AT(ipr_string, size, 8);
FIXED(ipr_string, 16);

AT(ipr_error, struct_size, 0);
AT(ipr_error, code, 8);
AT(ipr_error, item_kind, 12);
AT(ipr_error, item, 16);
AT(ipr_error, capacity, 24);
AT(ipr_error, length, 32);
AT(ipr_error, text, 40);
SIZE(ipr_error, 48);

AT(ipr_attribute, name, 0);
AT(ipr_attribute, kind, 16);
AT(ipr_attribute, flags, 20);
AT(ipr_attribute, i, 24);
AT(ipr_attribute, f, 32);
AT(ipr_attribute, text, 40);
AT(ipr_attribute, ints, 56);
AT(ipr_attribute, floats, 64);
AT(ipr_attribute, texts, 72);
AT(ipr_attribute, count, 80);
AT(ipr_attribute, columns, 88);
SIZE(ipr_attribute, 96);

AT(ipr_options, struct_size, 0);
AT(ipr_options, count, 8);
AT(ipr_options, stride, 16);
AT(ipr_options, items, 24);
SIZE(ipr_options, 32);

AT(ipr_tensor_info, name, 0);
AT(ipr_tensor_info, dtype, 16);
AT(ipr_tensor_info, rank, 20);
AT(ipr_tensor_info, shape, 24);
AT(ipr_tensor_info, scale_count, 32);
AT(ipr_tensor_info, scales, 40);
AT(ipr_tensor_info, zero_points, 48);
AT(ipr_tensor_info, axis, 56);
AT(ipr_tensor_info, reserved, 60);
AT(ipr_tensor_info, constant, 64);
AT(ipr_tensor_info, producer, 72);
SIZE(ipr_tensor_info, 80);

AT(ipr_constant, data, 0);
AT(ipr_constant, size, 8);
AT(ipr_constant, sha256, 16);
AT(ipr_constant, fd, 24);
AT(ipr_constant, offset, 32);
SIZE(ipr_constant, 40);

AT(ipr_layer, type, 0);
AT(ipr_layer, name, 16);
AT(ipr_layer, inputs, 32);
AT(ipr_layer, input_count, 40);
AT(ipr_layer, outputs, 48);
AT(ipr_layer, output_count, 56);
AT(ipr_layer, attributes, 64);
AT(ipr_layer, attribute_count, 72);
SIZE(ipr_layer, 80);

AT(ipr_graph, struct_size, 0);
AT(ipr_graph, name, 8);
AT(ipr_graph, layer_count, 24);
AT(ipr_graph, layer_stride, 32);
AT(ipr_graph, layers, 40);
AT(ipr_graph, attribute_stride, 48);
AT(ipr_graph, tensor_count, 56);
AT(ipr_graph, tensor_stride, 64);
AT(ipr_graph, tensors, 72);
AT(ipr_graph, constant_count, 80);
AT(ipr_graph, constant_stride, 88);
AT(ipr_graph, constants, 96);
AT(ipr_graph, input_count, 104);
AT(ipr_graph, inputs, 112);
AT(ipr_graph, output_count, 120);
AT(ipr_graph, outputs, 128);
SIZE(ipr_graph, 136);

AT(ipr_verdict, verdict, 0);
AT(ipr_verdict, reason_code, 4);
AT(ipr_verdict, group, 8);
AT(ipr_verdict, reason, 16);
AT(ipr_verdict, seconds, 32);
AT(ipr_verdict, bytes, 40);
SIZE(ipr_verdict, 48);

AT(ipr_report, struct_size, 0);
AT(ipr_report, verdict_count, 8);
AT(ipr_report, verdict_stride, 16);
AT(ipr_report, verdicts, 24);
AT(ipr_report, owner, 32);
AT(ipr_report, release, 40);
SIZE(ipr_report, 48);

AT(ipr_substitution, layers, 0);
AT(ipr_substitution, layer_count, 8);
AT(ipr_substitution, replacement, 16);
AT(ipr_substitution, inputs, 24);
AT(ipr_substitution, input_count, 32);
AT(ipr_substitution, outputs, 40);
AT(ipr_substitution, output_count, 48);
SIZE(ipr_substitution, 56);

AT(ipr_failure, layers, 0);
AT(ipr_failure, layer_count, 8);
AT(ipr_failure, reason_code, 16);
AT(ipr_failure, reserved, 20);
AT(ipr_failure, reason, 24);
SIZE(ipr_failure, 40);

AT(ipr_answer, struct_size, 0);
AT(ipr_answer, substitution_count, 8);
AT(ipr_answer, substitution_stride, 16);
AT(ipr_answer, substitutions, 24);
AT(ipr_answer, failure_count, 32);
AT(ipr_answer, failure_stride, 40);
AT(ipr_answer, failures, 48);
AT(ipr_answer, owner, 56);
AT(ipr_answer, release, 64);
SIZE(ipr_answer, 72);

AT(ipr_executable, struct_size, 0);
AT(ipr_executable, handle, 8);
AT(ipr_executable, flags, 16);
AT(ipr_executable, workspace_size, 24);
AT(ipr_executable, workspace_alignment, 32);
AT(ipr_executable, seconds, 40);
AT(ipr_executable, memory, 48);
AT(ipr_executable, owner, 56);
AT(ipr_executable, release, 64);
SIZE(ipr_executable, 72);

AT(ipr_tensor, data, 0);
AT(ipr_tensor, device_type, 8);
AT(ipr_tensor, device_id, 12);
AT(ipr_tensor, ndim, 16);
AT(ipr_tensor, dtype_code, 20);
AT(ipr_tensor, dtype_bits, 21);
AT(ipr_tensor, dtype_lanes, 22);
AT(ipr_tensor, shape, 24);
AT(ipr_tensor, strides, 32);
AT(ipr_tensor, byte_offset, 40);
AT(ipr_tensor, dtype, 48);
AT(ipr_tensor, memory_kind, 52);
AT(ipr_tensor, size, 56);
AT(ipr_tensor, native_handle, 64);
AT(ipr_tensor, fence, 72);
AT(ipr_tensor, flags, 80);
SIZE(ipr_tensor, 88);

AT(ipr_run, struct_size, 0);
AT(ipr_run, tensor_stride, 8);
AT(ipr_run, input_count, 16);
AT(ipr_run, inputs, 24);
AT(ipr_run, output_count, 32);
AT(ipr_run, outputs, 40);
AT(ipr_run, workspace, 48);
AT(ipr_run, workspace_size, 56);
AT(ipr_run, run_id, 64);
AT(ipr_run, deadline_ns, 72);
AT(ipr_run, cancel, 80);
AT(ipr_run, thread_limit, 88);
AT(ipr_run, priority, 92);
AT(ipr_run, host, 96);
AT(ipr_run, resize, 104);
SIZE(ipr_run, 112);

AT(ipr_property, name, 0);
AT(ipr_property, doc, 16);
AT(ipr_property, kind, 32);
AT(ipr_property, scope, 36);
AT(ipr_property, i, 40);
AT(ipr_property, f, 48);
AT(ipr_property, text, 56);
SIZE(ipr_property, 72);

AT(ipr_info, struct_size, 0);
AT(ipr_info, vendor, 8);
AT(ipr_info, name, 24);
AT(ipr_info, version, 40);
AT(ipr_info, description, 56);
AT(ipr_info, capabilities, 72);
AT(ipr_info, alignment, 80);
AT(ipr_info, memory_kinds, 88);
AT(ipr_info, reserved, 92);
AT(ipr_info, option_count, 96);
AT(ipr_info, option_stride, 104);
AT(ipr_info, options, 112);
AT(ipr_info, property_count, 120);
AT(ipr_info, property_stride, 128);
AT(ipr_info, properties, 136);
SIZE(ipr_info, 144);

AT(ipr_log_slot, sequence, 0);
AT(ipr_log_slot, level, 8);
AT(ipr_log_slot, length, 12);
SIZE(ipr_log_slot, 16);

AT(ipr_log_ring, struct_size, 0);
AT(ipr_log_ring, slot_count, 8);
AT(ipr_log_ring, slot_stride, 16);
AT(ipr_log_ring, slots, 24);
AT(ipr_log_ring, head, 32);
AT(ipr_log_ring, tail, 40);
AT(ipr_log_ring, lost, 48);
AT(ipr_log_ring, level, 56);
AT(ipr_log_ring, reserved, 60);
SIZE(ipr_log_ring, 64);

AT(ipr_host_extension, name, 0);
AT(ipr_host_extension, table, 16);
SIZE(ipr_host_extension, 24);

AT(ipr_host, struct_size, 0);
AT(ipr_host, api_major, 8);
AT(ipr_host, api_minor, 12);
AT(ipr_host, name, 16);
AT(ipr_host, version, 32);
AT(ipr_host, library_path, 48);
AT(ipr_host, cache_dir, 64);
AT(ipr_host, log, 80);
AT(ipr_host, aligned_alloc, 88);
AT(ipr_host, free, 96);
AT(ipr_host, thread_count, 104);
AT(ipr_host, flags, 108);
AT(ipr_host, cpu_mask_words, 112);
AT(ipr_host, cpu_mask, 120);
AT(ipr_host, extension_count, 128);
AT(ipr_host, extension_stride, 136);
AT(ipr_host, extensions, 144);
SIZE(ipr_host, 152);

AT(ipr_backend, magic, 0);
AT(ipr_backend, struct_size, 8);
AT(ipr_backend, self, 16);
AT(ipr_backend, init, 24);
AT(ipr_backend, shutdown, 32);
AT(ipr_backend, get_info, 40);
AT(ipr_backend, query_support, 48);
AT(ipr_backend, optimize, 56);
AT(ipr_backend, compile, 64);
AT(ipr_backend, execute, 72);
AT(ipr_backend, get_extension, 80);
SIZE(ipr_backend, 88);

AT(ipr_network, struct_size, 0);
AT(ipr_network, id, 8);
SIZE(ipr_network, 16);

AT(ipr_context_api, struct_size, 0);
AT(ipr_context_api, create, 8);
AT(ipr_context_api, destroy, 16);
AT(ipr_context_api, before_load, 24);
AT(ipr_context_api, after_load, 32);
AT(ipr_context_api, before_unload, 40);
AT(ipr_context_api, after_unload, 48);
SIZE(ipr_context_api, 56);

AT(ipr_blob, struct_size, 0);
AT(ipr_blob, data, 8);
AT(ipr_blob, size, 16);
AT(ipr_blob, flags, 24);
AT(ipr_blob, owner, 32);
AT(ipr_blob, release, 40);
SIZE(ipr_blob, 48);

AT(ipr_text, struct_size, 0);
AT(ipr_text, text, 8);
AT(ipr_text, owner, 24);
AT(ipr_text, release, 32);
SIZE(ipr_text, 40);

AT(ipr_blobs_api, struct_size, 0);
AT(ipr_blobs_api, fingerprint, 8);
AT(ipr_blobs_api, save, 16);
AT(ipr_blobs_api, check, 24);
AT(ipr_blobs_api, restore, 32);
SIZE(ipr_blobs_api, 40);

_Static_assert(IPR_MAGIC == 0x31444E4B42525049u, "magic");
_Static_assert(IPR_API_MAJOR == 1u, "major version");
