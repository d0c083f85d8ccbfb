# frozen_string_literal: true

require_relative "../abi"

module Probescope
  # The bridge from probes to OpenTelemetry. Supervisor and Watch run with privilege. Exporter and
  # its parts run without.
  module Otel
    # The lines that the bridge's bpftrace prints, one for each event:
    #
    #   MARK pid time address... figure...\ttext
    #
    # Before the first use of an address, and again every RENAME seconds, the line `N pid
    # address\tname` is printed. Names have lines of their own, because bpftrace before 0.23 has
    # room for only one long string in a probe.
    module Lines
      # Seconds after which names are printed again, which limits the effect of a line that the
      # kernel lost.
      RENAME = 5
      # bpftrace before 0.23 has no room for longer names.
      NAME_BYTES = 192
      TRACEPARENT_BYTES = 56

      # A word is the beginning of a short text, printed as two numbers, because bpftrace before
      # 0.23 has no room for several texts.
      WORD = "Q<2"

      # names: fields that are printed as addresses. figures, words: other fields. text: a field
      # that is printed as text, or nil.
      Kind = Struct.new(:probe, :names, :figures, :words, :text, :event)

      # The members of an event (with `type` for `class`) are :pid, :at (bpftrace's nsecs), the
      # names as addresses, the figures, the words, and :text.
      def self.kind(probe, names, figures, text = nil, words: [])
        members = [*(names - [:class]), *(:type if names.include?(:class)), *figures, *words]
        Kind.new(probe, names, figures, words, text, Struct.new(:pid, :at, *members, :text))
      end

      # The probe depends on the threshold.
      SLOW = kind(:function__slow1ms, %i[function path],
                  %i[elapsed self line thread_id outcome span_id parent_id], :traceparent)
      DETAIL = kind(:exception__detail, %i[type path function app_file],
                    %i[line app_line depth backtrace_cost thread_id], :traceparent)
      MESSAGE = kind(:exception__detail, [], %i[thread_id], :message)
      RAISES = kind(:exception__stats, %i[type path function], %i[line raised backtrace_cost string_cost])
      CALLS = kind(:function__stats, %i[function path], %i[line calls self elapsed max raised out])
      ALLOCATIONS = kind(:object__stats, %i[path class], %i[line allocated bytes])
      COLLECTION = kind(:gc__done, [], %i[elapsed], :kind)
      # For requests that have a span of their own. Their details are printed before them. Each long
      # text has a block of its own, which is skipped when the text is empty. All short texts share
      # one block, because bpftrace takes time to detach each probe.
      PARTS = %i[template path queue].to_h do |field|
        [field, kind(:request__done, [], %i[span_id], field)]
      end.freeze
      WORDS = kind(:request__done, [], %i[span_id], words: %i[method url_scheme system])
      REQUEST = kind(:request__done, [], %i[status elapsed thread_id span_id parent_id], :traceparent)
      # told: how many lines for single events were printed about this process. A reader computes
      # from it how many lines were lost.
      SECOND = kind(:stats__done, [], %i[elapsed cpu dropped details_suppressed told])
      MARKS = {"S" => SLOW, "X" => DETAIL, "M" => MESSAGE, "E" => RAISES, "F" => CALLS, "A" => ALLOCATIONS,
               "G" => COLLECTION, "D" => SECOND, "R" => REQUEST, "W" => WORDS}
              .merge(PARTS.transform_keys { |field| field.to_s[0] }).freeze
      # The names of the marks, by the class of their events.
      KINDS = {SLOW => "slow_calls", DETAIL => "exceptions", MESSAGE => "messages", RAISES => "raise_sites",
               CALLS => "functions", ALLOCATIONS => "allocations", COLLECTION => "collections",
               SECOND => "seconds", REQUEST => "requests"}
              .merge([WORDS, *PARTS.values].to_h { |kind| [kind, "parts of requests"] })
              .transform_keys(&:event).freeze
      NAME = "N"

      Name = Struct.new(:pid, :address, :name)

      module_function

      # Returns a Name, an event of one of MARKS, or nil for another line.
      def parse(line)
        head, text = line.split("\t", 2)
        mark, *words = head.to_s.split
        return Name.new(*words.map(&:to_i), text.to_s.chomp) if mark == NAME && words.size == 2

        kind = MARKS[mark] or return
        numbers = words.map(&:to_i)
        return unless numbers.size == kind.event.members.size - 1 + kind.words.size

        short = numbers.pop(2 * kind.words.size).each_slice(2).map { |word| word.pack(WORD).unpack1("Z*") }
        kind.event.new(*numbers, *short, text.to_s.chomp)
      end
    end
  end
end
