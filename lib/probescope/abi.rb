# frozen_string_literal: true

# Generated from providers/probescope.yml by `rake generate`. Do not edit.
module Probescope
  # The probes as the command reads them. args: names in the order of arg0, arg1, ... more: the
  # fields behind arg5, with their offsets.
  module ABI
    VERSION = 1
    PROVIDER = "probescope"
    PROBES = {
      function__entry: {args: %i[function file line depth kind], more: {path: 0, context_id: 8}},
      function__return: {args: %i[function file line elapsed self], more: {path: 0, context_id: 8, depth: 16, kind: 24, outcome: 32}},
      function__slow1ms: {args: %i[function file line elapsed self], more: {path: 0, thread_id: 8, outcome: 16, traceparent: 24, span_id: 32, parent_id: 40, request_id: 48}},
      function__slow10ms: {args: %i[function file line elapsed self], more: {path: 0, thread_id: 8, outcome: 16, traceparent: 24, span_id: 32, parent_id: 40, request_id: 48}},
      function__slow100ms: {args: %i[function file line elapsed self], more: {path: 0, thread_id: 8, outcome: 16, traceparent: 24, span_id: 32, parent_id: 40, request_id: 48}},
      function__stats: {args: %i[function file line calls self], more: {path: 0, elapsed: 8, max: 16, raised: 24, resumed: 32, out: 40}},
      functions__all: {args: %i[], more: {}},
      exception__raise: {args: %i[type file line depth backtrace_cost], more: {path: 0, function: 8, thread_id: 16}},
      exception__detail: {args: %i[type file line depth backtrace_cost], more: {path: 0, function: 8, thread_id: 16, message: 24, traceparent: 32, app_file: 40, app_line: 48}},
      exception__rescue: {args: %i[type file line elapsed unwound], more: {path: 0, function: 8, raise_file: 16, raise_line: 24}},
      exception__stats: {args: %i[type file line raised backtrace_cost], more: {path: 0, function: 8, depth_sum: 16, depth_max: 24, string_cost: 32, rescued: 40, rescue_file: 48, rescue_line: 56, asked_file: 64, asked_line: 72, app_file: 80, app_line: 88, rescued_at_once: 96, request: 104, request_number: 112}},
      backtrace__done: {args: %i[kind file line depth elapsed], more: {path: 0, function: 8, type: 16, raise_file: 24, raise_line: 32}},
      object__alloc: {args: %i[class file line size], more: {path: 0}},
      object__stats: {args: %i[class file line allocated bytes], more: {path: 0, request: 8, request_number: 16}},
      gc__start: {args: %i[kind generation], more: {}},
      gc__done: {args: %i[kind generation elapsed objects], more: {}},
      sample: {args: %i[function file line weight stack_id], more: {path: 0, thread_id: 8}},
      sample__stats: {args: %i[function file line self total], more: {path: 0, self_samples: 8, total_samples: 16, request: 24, request_number: 32, builtin: 40, builtin_number: 48}},
      sample__frame: {args: %i[function file line stack_id index], more: {path: 0}},
      line: {args: %i[function file line], more: {path: 0}},
      gvl__wait: {args: %i[thread_id elapsed], more: {}},
      request__start: {args: %i[route method], more: {thread_id: 0, traceparent: 8, span_id: 16, parent_id: 24, template: 32, path: 40, own: 48, system: 56, queue: 64, url_scheme: 72}},
      request__done: {args: %i[route method status elapsed], more: {thread_id: 0, traceparent: 8, span_id: 16, parent_id: 24, template: 32, path: 40, own: 48, system: 56, queue: 64, url_scheme: 72}},
      stats__by_request: {args: %i[], more: {}},
      stats__done: {args: %i[sequence elapsed cpu rows dropped], more: {samples_missed: 0, details_suppressed: 8, samples_taken: 16, looking: 24, cut: 32}},
      status: {args: %i[probe state reason], more: {}},
      function__here: {args: %i[], more: {record: 0, layout: 8, epoch: 16, thread_id: 24, gil: 32, gil_bytes: 40, vm_frame: 48, vm_code: 56, vm_text: 64, vm_lines: 72, vm_object: 80}},
      wait__stats: {args: %i[what file line waits blocked], more: {path: 0, function: 8, vm_lock: 16, longest: 24, holder: 32, holder_file: 40, holder_line: 48, holder_id: 56, request: 64, request_number: 72}},
      stack__frame: {args: %i[function file line id parent], more: {path: 0, file_number: 8, defined: 16, flags: 24}},
      stack__cpu: {args: %i[stack_id thread_id count weight looked], more: {request: 0, request_number: 8}}
    }.freeze
  end
end
