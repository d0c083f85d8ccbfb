# frozen_string_literal: true

require "json"
require_relative "error"
require_relative "event"
require_relative "order"
require_relative "program"

module Probescope
  module Tracing
    # Checks the requests to the helper. The helper runs with privilege, and the process that writes
    # to it need not have any. So a request names pids and our own programs, never a path or a
    # command. The file of an event is only compared with the files that a process maps. Unknown
    # fields are refused.
    module Request
      # The most bytes of a line.
      MOST_BYTES = 1 << 16
      # The largest pid_t.
      LARGEST_PID = (1 << 31) - 1
      # The most rows of a bpftrace map. A row is about 1 KiB of kernel memory, in each map.
      MOST_KEYS = 1 << 18
      # The most pages of bpftrace's buffer on each CPU.
      MOST_PAGES = 1 << 10
      LONGEST = 1e9
      NAME_BYTES = 255

      class Refused < Error
        def initialize(message) = super(message, "probescope COMMAND --help")
      end

      # accepts: a function that returns whether a value is valid.
      Kind = Struct.new(:meaning, :accepts) do
        def optional = Kind.new("#{meaning}, or null", ->(value) { value.nil? || accepts[value] })
      end

      text = lambda do |value, most|
        value.is_a?(String) && value.valid_encoding? && value.bytesize.between?(1, most) &&
          !value.include?("\0")
      end
      pid = ->(value) { value.is_a?(Integer) && value.between?(1, LARGEST_PID) }
      list = lambda do |value, size, one|
        value.is_a?(Array) && size.cover?(value.size) && value.uniq == value && value.all?(&one)
      end
      number = ->(value, range) { value.is_a?(Numeric) && range.cover?(value) }
      texts = lambda do |value|
        value.is_a?(Array) && value.size <= 3 && value.all? { |one| text[one, NAME_BYTES] }
      end

      BOOLEAN = Kind.new("true or false", ->(value) { [true, false].include?(value) })
      PID = Kind.new("a process id", pid)
      PIDS = Kind.new("up to #{Order::MOST} process ids",
                      ->(value) { list[value, 0..Order::MOST, pid] })
      NAME = Kind.new("a name of up to #{NAME_BYTES} bytes", ->(value) { text[value, NAME_BYTES] })
      PROGRAMS = Kind.new("one or two programs' names",
                          ->(value) { list[value, 1..2, ->(name) { Program.names.include?(name) }] })
      # A number, or a function's name. bpftrace parses none of them as an option (BpftraceProcess).
      ARGUMENTS = Kind.new("up to three texts of up to #{NAME_BYTES} bytes", texts)
      SECONDS = Kind.new("a number of seconds up to #{LONGEST.to_i}", ->(value) { number[value, 0..LONGEST] })
      SHARE = Kind.new("a share above 0", ->(value) { number[value, Float::MIN..LONGEST] })
      KEYS = Kind.new("1 to #{MOST_KEYS}", ->(value) { value.is_a?(Integer) && value.between?(1, MOST_KEYS) })
      PAGES = Kind.new("1 to #{MOST_PAGES}",
                       ->(value) { value.is_a?(Integer) && value.between?(1, MOST_PAGES) })

      # bpftrace 0.17 takes up to 200. Each string of a program takes so much of the 512 bytes of BPF's
      # stack.
      STRINGS = Kind.new("64 to 200", ->(value) { value.is_a?(Integer) && value.between?(64, 200) })

      EVENT = Kind.new("an event: #{Event::FORMS}", ->(value) { Event.valid?(value) })
      # The programs that take an event, and no other does.
      ON = %w[on on_stack on_by_request on_stack_by_request].freeze

      # {kind of request => its fields}. A field that may be null may be left out.
      FIELDS = {
        "list" => {},
        "try" => {},
        "stop" => {},
        "inspect" => {"pid" => PID},
        "trace" => {
          # Order describes these fields.
          "pids" => PIDS,
          "comm" => NAME.optional,
          "workers" => BOOLEAN.optional,
          "trust" => BOOLEAN.optional,
          "programs" => PROGRAMS,
          "arguments" => ARGUMENTS.optional,
          "seconds" => SECONDS,
          "max_overhead" => SHARE.optional,
          "some" => BOOLEAN.optional,
          "keys" => KEYS,
          "pages" => PAGES,
          "strings" => STRINGS.optional,
          "event" => EVENT.optional
        }
      }.freeze

      module_function

      # Parses a line. Returns [kind of request, {field => value}]; for "trace", an Order instead of
      # the Hash. Raises Refused.
      def read(line)
        order = JSON.parse(line, max_nesting: 3)
        raise Refused, "the helper takes a JSON object, and not #{order.class}" unless order.is_a?(Hash)

        what = order.delete("do")
        fields = FIELDS[what] or raise Refused, "the helper knows no order #{shown(what)}"
        check(what, order, fields)
        check_event(order) if what == "trace"
        [what, what == "trace" ? Order.of(**order.transform_keys(&:to_sym)) : order]
      rescue JSON::ParserError
        raise Refused, "the helper takes a JSON object a line"
      end

      def check(what, order, fields)
        unknown = order.keys - fields.keys
        raise Refused, "the helper knows no field #{shown(unknown.first)} of #{what}" if unknown.any?

        fields.each do |name, kind|
          next if kind.accepts[order[name]]

          raise Refused, "the helper refuses #{name} of #{what}, which has to be #{kind.meaning}: " \
                         "#{shown(order[name])}"
        end
      end

      # By itself, a program for an event counts page faults.
      def check_event(order)
        first, *others = order["programs"].map { |name| ON.include?(name) }
        return if first == !order["event"].nil? && others.none?

        raise Refused, "the helper takes an event with the programs #{ON.join(" and ")}, and only with them"
      end

      # A value, cut to fit into a message.
      def shown(value) = value.inspect[0, 80]
    end
  end
end
