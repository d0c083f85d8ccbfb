# frozen_string_literal: true

require_relative "bpftrace"
require_relative "error"
require_relative "text"

module Probescope
  module Tracing
    # An event of the kernel or of a C function, which `probescope on` counts. The command parses it
    # from its command line (.parse). The helper takes its fields from a request (.valid?, .of), and
    # writes a bpftrace program for it (#program).
    #
    # Of the user's text only names come into that program. They match the patterns below, and they
    # exist: a tracepoint and its field are in the kernel's lists, a software event is in SOFTWARE,
    # and a symbol is in a file that the process maps (CFunction). The name of that file does not
    # come into the program. The helper compares it with the files that the process maps, opens that
    # file, and makes a link to it.
    class Event
      NAME = /\A[A-Za-z_][A-Za-z0-9_]*\z/
      SYMBOL = /\A[A-Za-z_][A-Za-z0-9_@.]*\z/
      # The longest name of a tracepoint, a field or a symbol.
      NAME_BYTES = 255
      # The longest path on Linux.
      FILE_BYTES = 4095
      # What --sum takes of a uprobe. Further arguments may be on the stack.
      ARGUMENTS = %w[arg0 arg1 arg2 arg3].freeze
      # Events that the kernel counts by itself. The clocks among them (cpu-clock, task-clock) are no
      # events of a function.
      SOFTWARE = %w[page-faults minor-faults major-faults context-switches cpu-migrations alignment-faults
                    emulation-faults].freeze
      ALIASES = {"faults" => "page-faults", "cs" => "context-switches"}.freeze
      # {kind => its fields}
      KINDS = {"tracepoint" => %w[category name], "software" => %w[name], "uprobe" => %w[file symbol]}.freeze
      FORMS = "tracepoint:CATEGORY:NAME, software:NAME or uprobe:FILE:SYMBOL"
      # The lines of providers/on.bt that #program replaces.
      ATTACH_POINT = "software:page-faults:1\n"
      VALUE = "  $value = (int64)0;\n"
      # The most frames of --stack: so many has providers/on_stack.bt.
      MOST_FRAMES = 8

      # text: as on the command line. sum: what --sum takes, or nil. Raises Error.
      def self.parse(text, sum = nil)
        raise Error.new("the event is no valid text", FORMS) unless text.valid_encoding?

        kind, rest = text.split(":", 2)
        names = case kind
                when "tracepoint" then rest.to_s.split(":", -1)
                when "software" then [rest.to_s.delete_suffix(":1")].map { |name| ALIASES.fetch(name, name) }
                when "uprobe" then rest.to_s.rpartition(":").values_at(0, 2)
                end
        unless names && names.size == KINDS.fetch(kind).size
          raise Error.new("#{Text.clean(text).inspect} is no event", FORMS)
        end

        new("kind" => kind, **KINDS.fetch(kind).zip(names).to_h, **(sum ? {"sum" => sum} : {})).tap(&:check)
      end

      # Whether a request may have these fields.
      def self.valid?(fields)
        return false unless fields.is_a?(Hash) && fields.each_value.all?(String)

        names = KINDS[fields["kind"]]
        !names.nil? && (fields.keys - ["sum"]).sort == ["kind", *names].sort && new(fields).complaint.nil?
      end

      # fields: for which .valid? holds.
      def self.of(fields) = new(fields)

      # {name of a field => text}
      attr_reader :fields

      def initialize(fields)
        @fields = fields
      end

      def kind = fields["kind"]
      def uprobe? = kind == "uprobe"
      def file = fields["file"]
      def symbol = fields["symbol"]
      # What --sum adds up, or nil.
      def sum = fields["sum"]
      def to_s = fields.values_at("kind", *KINDS.fetch(kind)).join(":")

      # Raises Error with the reason why there can be no such event.
      def check
        complaint&.then { |text, step| raise Error.new(text, step) }
      end

      # [Why there can be no such event, what to do instead], or nil.
      def complaint
        send(:"complaint_of_#{kind}") || complaint_of_sum
      end

      # Raises Error where the kernel does not have the event, or the event not the field.
      def exist!(kernel)
        return unless kind == "tracepoint"

        found = kernel.fields_of(fields["category"], fields["name"])
        return if sum.nil? || found.include?(sum)

        others = found.empty? ? "none" : found.join(", ")
        raise Error.new("#{self} has no integer field #{sum}; it has #{others}",
                        "probescope on #{self} without --sum")
      end

      # Whether `bpftrace -p` counts the event in all threads of the process, and finds the file.
      def alone?(pid)
        case kind
        when "software" then (Bpftrace.find.version <=> Bpftrace::ONE_THREAD_SINCE).negative?
        when "uprobe" then File.readlink("/proc/#{pid}/ns/mnt") == File.readlink("/proc/self/ns/mnt")
        else true
        end
      rescue SystemCallError # it has ended
        false
      end

      # text: of providers/on.bt or on_stack.bt. link: the path of the helper's own link to the file
      # of a uprobe. Returns the text of the program for this event.
      def program(text, link)
        check # once more, whatever came before
        replaced(replaced(text, ATTACH_POINT, "#{attach_point(link)}\n"), VALUE,
                 "  $value = (int64)#{value};\n")
      end

      private

      def attach_point(link)
        case kind
        when "tracepoint" then "tracepoint:#{fields["category"]}:#{fields["name"]}"
        when "software" then "software:#{fields["name"]}:1" # 1: each of them, and not one of 100
        when "uprobe" then "uprobe:\"#{link}\":\"#{symbol}\""
        end
      end

      def value
        return "0" unless sum

        uprobe? ? sum : "args->#{sum}"
      end

      def replaced(text, line, by)
        raise "the program has not one line #{line.inspect}" unless text.scan(/^#{Regexp.escape(line)}/).one?

        text.sub(/^#{Regexp.escape(line)}/) { by }
      end

      def complaint_of_tracepoint
        wrong = fields.values_at("category", "name").find { |name| !name?(name) } or return
        ["#{shown(wrong)} is no name of a tracepoint", "ls /sys/kernel/tracing/events"]
      end

      def complaint_of_software
        return if SOFTWARE.include?(fields["name"])

        ["there is no software event #{shown(fields["name"])}", "software:#{SOFTWARE.join(", software:")}"]
      end

      def complaint_of_uprobe
        unless file.bytesize.between?(1, FILE_BYTES) && file.valid_encoding? && !file.include?("\0") &&
               (file.start_with?("/") || !file.include?("/"))
          return ["#{shown(file)} is neither the whole path of a file nor its name",
                  "uprobe:libc.so.6:malloc"]
        end
        return if symbol.bytesize <= NAME_BYTES && symbol.match?(SYMBOL)

        ["#{shown(symbol)} is no name of a C function", "uprobe:libc.so.6:malloc"]
      end

      def complaint_of_sum
        return if sum.nil?
        return ["#{self} has no values that --sum could add up", "--sum with a tracepoint or uprobe"] if
          kind == "software"
        return if uprobe? ? ARGUMENTS.include?(sum) : name?(sum)

        ["--sum takes no #{shown(sum)}", uprobe? ? "--sum #{ARGUMENTS.join(", ")}" : "--sum FIELD"]
      end

      def name?(text) = text.bytesize <= NAME_BYTES && text.match?(NAME)

      # The start of a text, to fit into a message.
      def shown(text) = Text.clean(text.scrub[0, 80]).inspect
    end
  end
end
