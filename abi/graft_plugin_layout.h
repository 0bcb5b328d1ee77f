/* Code generated from abi/graft_plugin.h by abi/gen. DO NOT EDIT.
 *
 * Sizes and offsets that every side of the interface agrees on. */
#ifndef GRAFT_PLUGIN_LAYOUT_H_
#define GRAFT_PLUGIN_LAYOUT_H_

#include <assert.h>
#include <stddef.h>

#include "graft_plugin.h"

// clang-format off
static_assert(sizeof(graft_extension) == 24, "size of graft_extension");
static_assert(offsetof(graft_extension, size) == 0, "offset of graft_extension.size");
static_assert(offsetof(graft_extension, next) == 8, "offset of graft_extension.next");
static_assert(offsetof(graft_extension, name) == 16, "offset of graft_extension.name");
static_assert(sizeof(graft_device) == 8, "size of graft_device");
static_assert(offsetof(graft_device, type) == 0, "offset of graft_device.type");
static_assert(offsetof(graft_device, id) == 4, "offset of graft_device.id");
static_assert(sizeof(graft_data_type) == 4, "size of graft_data_type");
static_assert(offsetof(graft_data_type, code) == 0, "offset of graft_data_type.code");
static_assert(offsetof(graft_data_type, bits) == 1, "offset of graft_data_type.bits");
static_assert(offsetof(graft_data_type, lanes) == 2, "offset of graft_data_type.lanes");
static_assert(sizeof(graft_tensor) == 48, "size of graft_tensor");
static_assert(offsetof(graft_tensor, data) == 0, "offset of graft_tensor.data");
static_assert(offsetof(graft_tensor, device) == 8, "offset of graft_tensor.device");
static_assert(offsetof(graft_tensor, ndim) == 16, "offset of graft_tensor.ndim");
static_assert(offsetof(graft_tensor, dtype) == 20, "offset of graft_tensor.dtype");
static_assert(offsetof(graft_tensor, shape) == 24, "offset of graft_tensor.shape");
static_assert(offsetof(graft_tensor, strides) == 32, "offset of graft_tensor.strides");
static_assert(offsetof(graft_tensor, byte_offset) == 40, "offset of graft_tensor.byte_offset");
static_assert(sizeof(graft_message) == 32, "size of graft_message");
static_assert(offsetof(graft_message, size) == 0, "offset of graft_message.size");
static_assert(offsetof(graft_message, next) == 8, "offset of graft_message.next");
static_assert(offsetof(graft_message, text) == 16, "offset of graft_message.text");
static_assert(offsetof(graft_message, capacity) == 24, "offset of graft_message.capacity");
static_assert(sizeof(graft_parameter) == 48, "size of graft_parameter");
static_assert(offsetof(graft_parameter, size) == 0, "offset of graft_parameter.size");
static_assert(offsetof(graft_parameter, next) == 8, "offset of graft_parameter.next");
static_assert(offsetof(graft_parameter, name) == 16, "offset of graft_parameter.name");
static_assert(offsetof(graft_parameter, types) == 24, "offset of graft_parameter.types");
static_assert(offsetof(graft_parameter, num_types) == 32, "offset of graft_parameter.num_types");
static_assert(offsetof(graft_parameter, type_variable) == 36, "offset of graft_parameter.type_variable");
static_assert(offsetof(graft_parameter, flags) == 40, "offset of graft_parameter.flags");
static_assert(offsetof(graft_parameter, min_count) == 44, "offset of graft_parameter.min_count");
static_assert(sizeof(graft_attribute) == 64, "size of graft_attribute");
static_assert(offsetof(graft_attribute, size) == 0, "offset of graft_attribute.size");
static_assert(offsetof(graft_attribute, next) == 8, "offset of graft_attribute.next");
static_assert(offsetof(graft_attribute, name) == 16, "offset of graft_attribute.name");
static_assert(offsetof(graft_attribute, kind) == 24, "offset of graft_attribute.kind");
static_assert(offsetof(graft_attribute, flags) == 28, "offset of graft_attribute.flags");
static_assert(offsetof(graft_attribute, int_value) == 32, "offset of graft_attribute.int_value");
static_assert(offsetof(graft_attribute, float_value) == 40, "offset of graft_attribute.float_value");
static_assert(offsetof(graft_attribute, data) == 48, "offset of graft_attribute.data");
static_assert(offsetof(graft_attribute, count) == 56, "offset of graft_attribute.count");
static_assert(sizeof(graft_operator) == 72, "size of graft_operator");
static_assert(offsetof(graft_operator, size) == 0, "offset of graft_operator.size");
static_assert(offsetof(graft_operator, next) == 8, "offset of graft_operator.next");
static_assert(offsetof(graft_operator, name) == 16, "offset of graft_operator.name");
static_assert(offsetof(graft_operator, summary) == 24, "offset of graft_operator.summary");
static_assert(offsetof(graft_operator, inputs) == 32, "offset of graft_operator.inputs");
static_assert(offsetof(graft_operator, outputs) == 40, "offset of graft_operator.outputs");
static_assert(offsetof(graft_operator, attributes) == 48, "offset of graft_operator.attributes");
static_assert(offsetof(graft_operator, num_inputs) == 56, "offset of graft_operator.num_inputs");
static_assert(offsetof(graft_operator, num_outputs) == 60, "offset of graft_operator.num_outputs");
static_assert(offsetof(graft_operator, num_attributes) == 64, "offset of graft_operator.num_attributes");
static_assert(offsetof(graft_operator, since_version) == 68, "offset of graft_operator.since_version");
static_assert(sizeof(graft_plugin_info) == 56, "size of graft_plugin_info");
static_assert(offsetof(graft_plugin_info, size) == 0, "offset of graft_plugin_info.size");
static_assert(offsetof(graft_plugin_info, next) == 8, "offset of graft_plugin_info.next");
static_assert(offsetof(graft_plugin_info, name) == 16, "offset of graft_plugin_info.name");
static_assert(offsetof(graft_plugin_info, version) == 24, "offset of graft_plugin_info.version");
static_assert(offsetof(graft_plugin_info, summary) == 32, "offset of graft_plugin_info.summary");
static_assert(offsetof(graft_plugin_info, device_type) == 40, "offset of graft_plugin_info.device_type");
static_assert(offsetof(graft_plugin_info, num_operators) == 44, "offset of graft_plugin_info.num_operators");
static_assert(offsetof(graft_plugin_info, operators) == 48, "offset of graft_plugin_info.operators");
static_assert(sizeof(graft_probe_result) == 24, "size of graft_probe_result");
static_assert(offsetof(graft_probe_result, size) == 0, "offset of graft_probe_result.size");
static_assert(offsetof(graft_probe_result, next) == 8, "offset of graft_probe_result.next");
static_assert(offsetof(graft_probe_result, score) == 16, "offset of graft_probe_result.score");
static_assert(offsetof(graft_probe_result, reserved) == 20, "offset of graft_probe_result.reserved");
static_assert(sizeof(graft_named_tensor) == 32, "size of graft_named_tensor");
static_assert(offsetof(graft_named_tensor, size) == 0, "offset of graft_named_tensor.size");
static_assert(offsetof(graft_named_tensor, next) == 8, "offset of graft_named_tensor.next");
static_assert(offsetof(graft_named_tensor, name) == 16, "offset of graft_named_tensor.name");
static_assert(offsetof(graft_named_tensor, tensor) == 24, "offset of graft_named_tensor.tensor");
static_assert(sizeof(graft_fold_request) == 64, "size of graft_fold_request");
static_assert(offsetof(graft_fold_request, size) == 0, "offset of graft_fold_request.size");
static_assert(offsetof(graft_fold_request, next) == 8, "offset of graft_fold_request.next");
static_assert(offsetof(graft_fold_request, operator_name) == 16, "offset of graft_fold_request.operator_name");
static_assert(offsetof(graft_fold_request, constants) == 24, "offset of graft_fold_request.constants");
static_assert(offsetof(graft_fold_request, attributes) == 32, "offset of graft_fold_request.attributes");
static_assert(offsetof(graft_fold_request, num_constants) == 40, "offset of graft_fold_request.num_constants");
static_assert(offsetof(graft_fold_request, num_attributes) == 44, "offset of graft_fold_request.num_attributes");
static_assert(offsetof(graft_fold_request, emit) == 48, "offset of graft_fold_request.emit");
static_assert(offsetof(graft_fold_request, emit_context) == 56, "offset of graft_fold_request.emit_context");
static_assert(sizeof(graft_create_request) == 56, "size of graft_create_request");
static_assert(offsetof(graft_create_request, size) == 0, "offset of graft_create_request.size");
static_assert(offsetof(graft_create_request, next) == 8, "offset of graft_create_request.next");
static_assert(offsetof(graft_create_request, operator_index) == 16, "offset of graft_create_request.operator_index");
static_assert(offsetof(graft_create_request, num_attributes) == 20, "offset of graft_create_request.num_attributes");
static_assert(offsetof(graft_create_request, attributes) == 24, "offset of graft_create_request.attributes");
static_assert(offsetof(graft_create_request, constants) == 32, "offset of graft_create_request.constants");
static_assert(offsetof(graft_create_request, num_constants) == 40, "offset of graft_create_request.num_constants");
static_assert(offsetof(graft_create_request, device) == 44, "offset of graft_create_request.device");
static_assert(offsetof(graft_create_request, reserved) == 52, "offset of graft_create_request.reserved");
static_assert(sizeof(graft_run_context) == 80, "size of graft_run_context");
static_assert(offsetof(graft_run_context, size) == 0, "offset of graft_run_context.size");
static_assert(offsetof(graft_run_context, next) == 8, "offset of graft_run_context.next");
static_assert(offsetof(graft_run_context, stream) == 16, "offset of graft_run_context.stream");
static_assert(offsetof(graft_run_context, workspace) == 24, "offset of graft_run_context.workspace");
static_assert(offsetof(graft_run_context, workspace_size) == 32, "offset of graft_run_context.workspace_size");
static_assert(offsetof(graft_run_context, parallel_for) == 40, "offset of graft_run_context.parallel_for");
static_assert(offsetof(graft_run_context, parallel_context) == 48, "offset of graft_run_context.parallel_context");
static_assert(offsetof(graft_run_context, log) == 56, "offset of graft_run_context.log");
static_assert(offsetof(graft_run_context, log_context) == 64, "offset of graft_run_context.log_context");
static_assert(offsetof(graft_run_context, concurrency) == 72, "offset of graft_run_context.concurrency");
static_assert(offsetof(graft_run_context, reserved) == 76, "offset of graft_run_context.reserved");
static_assert(sizeof(graft_plugin) == 88, "size of graft_plugin");
static_assert(offsetof(graft_plugin, size) == 0, "offset of graft_plugin.size");
static_assert(offsetof(graft_plugin, next) == 8, "offset of graft_plugin.next");
static_assert(offsetof(graft_plugin, abi_major) == 16, "offset of graft_plugin.abi_major");
static_assert(offsetof(graft_plugin, abi_minor) == 20, "offset of graft_plugin.abi_minor");
static_assert(offsetof(graft_plugin, describe) == 24, "offset of graft_plugin.describe");
static_assert(offsetof(graft_plugin, probe) == 32, "offset of graft_plugin.probe");
static_assert(offsetof(graft_plugin, fold) == 40, "offset of graft_plugin.fold");
static_assert(offsetof(graft_plugin, create) == 48, "offset of graft_plugin.create");
static_assert(offsetof(graft_plugin, infer_shapes) == 56, "offset of graft_plugin.infer_shapes");
static_assert(offsetof(graft_plugin, workspace_size) == 64, "offset of graft_plugin.workspace_size");
static_assert(offsetof(graft_plugin, run) == 72, "offset of graft_plugin.run");
static_assert(offsetof(graft_plugin, destroy) == 80, "offset of graft_plugin.destroy");
static_assert(sizeof(graft_ort_ops) == 32, "size of graft_ort_ops");
static_assert(offsetof(graft_ort_ops, size) == 0, "offset of graft_ort_ops.size");
static_assert(offsetof(graft_ort_ops, next) == 8, "offset of graft_ort_ops.next");
static_assert(offsetof(graft_ort_ops, name) == 16, "offset of graft_ort_ops.name");
static_assert(offsetof(graft_ort_ops, get) == 24, "offset of graft_ort_ops.get");
static_assert(sizeof(graft_ort_registrar) == 32, "size of graft_ort_registrar");
static_assert(offsetof(graft_ort_registrar, size) == 0, "offset of graft_ort_registrar.size");
static_assert(offsetof(graft_ort_registrar, next) == 8, "offset of graft_ort_registrar.next");
static_assert(offsetof(graft_ort_registrar, join) == 16, "offset of graft_ort_registrar.join");
static_assert(offsetof(graft_ort_registrar, domain) == 24, "offset of graft_ort_registrar.domain");
// clang-format on

#endif /* GRAFT_PLUGIN_LAYOUT_H_ */
