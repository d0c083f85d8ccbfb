# frozen_string_literal: true

# Made by `rake generate` from docs/schema/schemas.yml.
module Probescope
  module Tracing
    # The fields and columns of each command that shows a table or lines.
    module Definitions
      # kind: name of a function of Cells. key: a key of the row, or nil. width: characters of a
      # line's column.
      Column = Struct.new(:heading, :kind, :key, :optional, :width)
      # fields: keys of a row in JSON. nothing, not_covered: texts; not_covered may be nil.
      # map_keys: number of rows for which bpftrace has room. map_keys_by_request: the same for
      # the program that tells requests apart. samples: whether the figures come from samples,
      # which have a rate.
      Definition = Struct.new(:fields, :columns, :nothing, :not_covered, :map_keys,
                              :map_keys_by_request, :samples, keyword_init: true)

      ALL = {
        "hot" => Definition.new(
          fields: %i[pid method route file line function self_share total_share samples largest_line called outside
                     builtins],
          columns: [
            ["SELF", :share, :self_share, false],
            ["TOTAL", :share, :total_share, false],
            ["SAMPLES", :count, :samples, false],
            ["FUNCTION", :text, :function, false],
            ["DEFINED AT", :place, nil, false],
            ["LINE", :number, :largest_line, true],
            ["CALLED", :largest_called, :called, true],
            ["IN C", :largest_builtin, :builtins, true]
          ].map { |column| Column.new(*column).freeze },
          nothing: "the process was not on the CPU",
          not_covered: nil,
          map_keys: 16_384,
          map_keys_by_request: 49_152,
          samples: true
        ),
        "lines" => Definition.new(
          fields: %i[pid file line function self_share samples called outside],
          columns: [
            ["SELF", :share, :self_share, false],
            ["SAMPLES", :count, :samples, false],
            ["LINE", :place, nil, false],
            ["FUNCTION", :text, :function, false],
            ["CALLED", :largest_called, :called, true]
          ].map { |column| Column.new(*column).freeze },
          nothing: "the process was not on the CPU",
          not_covered: nil,
          map_keys: 16_384,
          map_keys_by_request: 16_384,
          samples: true
        ),
        "exceptions" => Definition.new(
          fields: %i[pid method route file line type function count per_second backtrace_cost_ns capture_ns strings_ns
                     cpu_share mean_depth app_at rescued_at formatted_at rescued_at_once_share],
          columns: [
            ["CPU", :share, :cpu_share, false],
            ["BACKTRACES", :time, :backtrace_cost_ns, false],
            ["STRINGS", :time_above_zero, :strings_ns, true],
            ["RAISED", :count, :count, false],
            ["PER S", :decimal, :per_second, false],
            ["DEPTH", :decimal, :mean_depth, false],
            ["TYPE", :text, :type, false],
            ["RAISED AT", :place, nil, false],
            ["IN", :text, :function, false],
            ["APP AT", :text, :app_at, true],
            ["AT ONCE", :share, :rescued_at_once_share, true],
            ["RESCUED AT", :text, :rescued_at, true],
            ["FORMATTED AT", :text, :formatted_at, true]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no exception was raised",
          not_covered: nil,
          map_keys: 16_384,
          map_keys_by_request: 16_384,
          samples: false
        ),
        "backtraces" => Definition.new(
          fields: %i[pid file line call function count total_ns mean_ns max_ns mean_depth cpu_share type raised_at],
          columns: [
            ["CPU", :share, :cpu_share, false],
            ["TOTAL", :time, :total_ns, false],
            ["COUNT", :count, :count, false],
            ["MEAN", :time, :mean_ns, false],
            ["MAX", :time, :max_ns, false],
            ["FRAMES", :decimal, :mean_depth, false],
            ["CALL", :text, :call, false],
            ["ASKED AT", :place, nil, false],
            ["IN", :text, :function, false],
            ["LAST OF", :raised_exception, :type, true]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no backtrace was turned into strings",
          not_covered: nil,
          map_keys: 16_384,
          map_keys_by_request: 16_384,
          samples: false
        ),
        "calls" => Definition.new(
          fields: %i[pid file line function calls elapsed_ns self_ns mean_ns max_ns raised counted_until],
          columns: [
            ["SELF", :time, :self_ns, false],
            ["ELAPSED", :time, :elapsed_ns, false],
            ["CALLS", :count, :calls, false],
            ["MEAN", :time, :mean_ns, false],
            ["MAX", :time, :max_ns, false],
            ["RAISED", :count, :raised, false],
            ["FUNCTION", :counted_function, :function, false],
            ["DEFINED AT", :place, nil, false]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no function of the application was called",
          not_covered: "calls that were under way when the interval began or ended",
          map_keys: 16_384,
          map_keys_by_request: 16_384,
          samples: false
        ),
        "alloc" => Definition.new(
          fields: %i[pid method route file line class count bytes count_share],
          columns: [
            ["SHARE", :share, :count_share, false],
            ["COUNT", :count, :count, false],
            ["BYTES", :bytes, :bytes, false],
            ["CLASS", :text, :class, false],
            ["ALLOCATED AT", :place, nil, false]
          ].map { |column| Column.new(*column).freeze },
          nothing: "nothing was allocated",
          not_covered: nil,
          map_keys: 32_768,
          map_keys_by_request: 49_152,
          samples: false
        ),
        "requests" => Definition.new(
          fields: %i[pid method route status count per_second total_ns mean_ns p50_ns p99_ns max_ns errors statuses
                     histogram time_share],
          columns: [
            ["SHARE", :share, :time_share, false],
            ["REQUESTS", :count, :count, false],
            ["PER S", :decimal, :per_second, false],
            ["MEAN", :time, :mean_ns, false],
            ["P50", :time, :p50_ns, false],
            ["P99", :time, :p99_ns, false],
            ["MAX", :time, :max_ns, false],
            ["STATUS", :status, :status, false],
            ["METHOD", :text, :method, false],
            ["ROUTE", :text, :route, false]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no request ended in that time",
          not_covered: "requests that were under way when the interval began or ended",
          map_keys: 32_768,
          map_keys_by_request: 32_768,
          samples: false
        ),
        "slow" => Definition.new(
          fields: %i[pid method route file line function elapsed_ns self_ns at outcome thread_id traceparent],
          columns: [
            ["ELAPSED", :time, :elapsed_ns, false],
            ["SELF", :time, :self_ns, false],
            ["ENDED", :clock, :at, false],
            ["THREAD", :number, :thread_id, false],
            ["FUNCTION", :nested_call, :function, false],
            ["DEFINED AT", :place, nil, false],
            ["TRACE", :trace_id, :traceparent, false]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no call of the application took so long",
          not_covered: "calls that were under way when the interval began or ended",
          map_keys: 16_384,
          map_keys_by_request: 16_384,
          samples: false
        ),
        "gc" => Definition.new(
          fields: %i[pid kind count total_ns mean_ns max_ns live_objects freed_objects histogram wall_share],
          columns: [
            ["SHARE", :share, :wall_share, false],
            ["TOTAL", :time, :total_ns, false],
            ["COUNT", :count, :count, false],
            ["MEAN", :time, :mean_ns, false],
            ["MAX", :time, :max_ns, false],
            ["LIVE", :count, :live_objects, true],
            ["FREED", :count, :freed_objects, true],
            ["KIND", :text, :kind, false]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no garbage was collected",
          not_covered: nil,
          map_keys: 16_384,
          map_keys_by_request: 16_384,
          samples: false
        ),
        "syscalls" => Definition.new(
          fields: %i[pid method route file line line_is function call calls total_ns mean_ns longest_ns failed errors
                     bytes path],
          columns: [
            ["TOTAL", :time, :total_ns, false],
            ["CALLS", :count, :calls, false],
            ["MEAN", :time, :mean_ns, false],
            ["LONGEST", :time, :longest_ns, false],
            ["FAILED", :errors, :failed, true],
            ["BYTES", :bytes, :bytes, true],
            ["CALL", :text, :call, false],
            ["FUNCTION", :text, :function, false],
            ["DEFINED AT", :place_of_definition, :line, true],
            ["AT", :place_of_line, :line_is, true],
            ["PATH", :text, :path, true]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no thread of a traced function made a system call",
          not_covered: "calls that were under way when the interval ended",
          map_keys: 32_768,
          map_keys_by_request: 32_768,
          samples: false
        ),
        "offcpu" => Definition.new(
          fields: %i[pid method route file line function blocked_ns queued_ns times longest_ns reasons woken_by],
          columns: [
            ["BLOCKED", :time, :blocked_ns, false],
            ["QUEUED", :time, :queued_ns, false],
            ["TIMES", :count, :times, false],
            ["LONGEST", :time, :longest_ns, false],
            ["REASON", :largest_reason, :reasons, false],
            ["FUNCTION", :traced_function, :function, false],
            ["DEFINED AT", :place, nil, false],
            ["WOKEN BY", :largest_waker, :woken_by, true]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no thread was off the CPU",
          not_covered: nil,
          map_keys: 16_384,
          map_keys_by_request: 32_768,
          samples: false
        ),
        "on" => Definition.new(
          fields: %i[pid method route file line function events per_second sum callers share],
          columns: [
            ["SHARE", :share, :share, false],
            ["EVENTS", :count, :events, false],
            ["PER S", :decimal, :per_second, false],
            ["SUM", :signed, :sum, true],
            ["FUNCTION", :text, :function, false],
            ["DEFINED AT", :place, nil, false],
            ["CALLED BY", :callers, :callers, true]
          ].map { |column| Column.new(*column).freeze },
          nothing: "the event happened in no thread of a traced function",
          not_covered: nil,
          map_keys: 32_768,
          map_keys_by_request: 32_768,
          samples: false
        ),
        "gvl" => Definition.new(
          fields: %i[pid thread_id name waits total_ns mean_ns max_ns wall_share],
          columns: [
            ["SHARE", :share, :wall_share, false],
            ["TOTAL", :time, :total_ns, false],
            ["WAITS", :count, :waits, false],
            ["MEAN", :time, :mean_ns, false],
            ["MAX", :time, :max_ns, false],
            ["THREAD", :number, :thread_id, false],
            ["NAME", :text, :name, false]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no thread waited for the VM lock",
          not_covered: "waits that were under way when the interval ended",
          map_keys: 16_384,
          map_keys_by_request: 16_384,
          samples: false
        ),
        "waits" => Definition.new(
          fields: %i[pid method route file line what call line_is function waits blocked_ns vm_lock_ns mean_ns longest_ns
                     holders blocked_share],
          columns: [
            ["SHARE", :share, :blocked_share, false],
            ["BLOCKED", :time, :blocked_ns, false],
            ["VM LOCK", :time_above_zero, :vm_lock_ns, true],
            ["WAITS", :count, :waits, false],
            ["MEAN", :time, :mean_ns, false],
            ["LONGEST", :time, :longest_ns, false],
            ["WAITS FOR", :text, :what, false],
            ["AT", :place_of_wait, :line, false],
            ["FUNCTION", :text, :function, false],
            ["ENDED BY", :largest_holder, :holders, true]
          ].map { |column| Column.new(*column).freeze },
          nothing: "no thread waited",
          not_covered: "waits that were under way when the interval ended",
          map_keys: 16_384,
          map_keys_by_request: 32_768,
          samples: false
        )
      }.freeze

      # A command that prints a line for each event. printed: the fields that its program prints
      # after a mark. takes: {figure => probe without which it is not known}.
      Line = Struct.new(:columns, :printed, :takes, keyword_init: true)

      LINES = {
        "stat" => Line.new(
          columns: [
            ["CPU", :share, :cpu_share, false, 8],
            ["LOOKING", :share, :looking_share, false, 8],
            ["CALLS", :count, :calls, false, 12],
            ["RAISES", :count, :raises, false, 10],
            ["BACKTRACES", :time, :backtrace_ns, false, 11],
            ["ALLOCS", :count, :allocations, false, 12],
            ["BYTES", :bytes, :bytes, false, 10],
            ["GC", :time, :gc_ns, false, 9],
            ["SAMPLES", :count, :samples, false, 8],
            ["LOST", :lost_rows_and_samples, :lost, false, 6]
          ].map { |column| Column.new(*column).freeze },
          printed: %i[pid wall_ns cpu_ns calls raises backtrace_ns allocations bytes gc_ns samples rows samples_missed
                      details ended looking_ns cut],
          takes: {calls: :function__stats, raises: :exception__stats, backtrace_ns: :exception__stats, allocations: :object__stats, bytes: :object__stats, gc_ns: :gc__done, samples: :sample}
        ),
        "flow" => Line.new(
          columns: [
            ["ELAPSED", :time_at_end, :elapsed_ns, false, 9],
            ["SELF", :time_at_end, :self_ns, false, 10],
            ["CALL", :live_call, :function, false]
          ].map { |column| Column.new(*column).freeze },
          printed: %i[],
          takes: {}
        )
      }.freeze

      # The columns of what commands list: {command => {field => columns}}.
      LISTS = {
        "ps" => {
          rows: [
            ["PID", :number, :pid, false],
            ["NAME", :text, :name, false],
            ["RUNTIME", :text, :runtime, false],
            ["VERSION", :text, :version, false],
            ["ABI", :number, :abi, false],
            ["LIBRARY", :library, :library, false],
            ["ENABLED", :words, :enabled, false]
          ].map { |column| Column.new(*column).freeze }
        },
        "status" => {
          own: [
            ["OF ITS OWN", :text, :name, false],
            ["ARGUMENTS", :number, :arguments, false],
            ["LISTENED", :yes_or_no, :listened, false],
            ["LIBRARY", :path_or_none, :path, false]
          ].map { |column| Column.new(*column).freeze },
          rows: [
            ["PROBE", :text, :name, false],
            ["STATE", :text, :state, false],
            ["LISTENED", :yes_or_no, :listened, false],
            ["REASON", :words, :reason, false]
          ].map { |column| Column.new(*column).freeze }
        },
        "convert" => {
          own: [
            ["SELF", :share, :self_share, false],
            ["TOTAL", :share, :total_share, false],
            ["WEIGHT", :weight, :weight, false],
            ["COUNT", :count, :count, false],
            ["FUNCTION", :text, :function, false],
            ["DEFINED AT", :place, nil, false],
            ["LINE", :line_at, :line_at, false],
            ["CALLED", :largest_called, :called, false]
          ].map { |column| Column.new(*column).freeze },
          self: [
            ["SELF", :share, :self_share, false],
            ["TOTAL", :share, :total_share, false],
            ["WEIGHT", :weight, :weight, false],
            ["COUNT", :count, :count, false],
            ["FUNCTION", :text, :function, false],
            ["DEFINED AT", :place, nil, false]
          ].map { |column| Column.new(*column).freeze },
          total: [
            ["TOTAL", :share, :total_share, false],
            ["SELF", :share, :self_share, false],
            ["FUNCTION", :text, :function, false],
            ["DEFINED AT", :place, nil, false]
          ].map { |column| Column.new(*column).freeze }
        },
        "diff" => {
          rows: [
            ["CHANGE", :change, :share, false],
            ["BEFORE", :normalised, :before, false],
            ["AFTER", :normalised, :after, false],
            ["FUNCTION", :text, :function, false],
            ["DEFINED AT", :place, nil, false]
          ].map { |column| Column.new(*column).freeze }
        }
      }.freeze

      # The version of the JSON. Within a version, fields are added, and no field changes its meaning.
      SCHEMA = 1
      # How a call ended, as probes tell it.
      OUTCOMES = {0 => "returned", 1 => "raised", 2 => "suspended"}.freeze
      # Number of rows for which bpftrace has room, where a command gives no other number.
      MAP_KEYS = 16_384
      # Fields of the process in the JSON of status.
      PROCESS = %i[pid runtime version library abi path deleted flags memory_limit memory_used rows_dropped flushes
                   switches watcher_ticks note].freeze
    end
  end
end
