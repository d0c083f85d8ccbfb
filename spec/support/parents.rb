# frozen_string_literal: true

module Support
  # Compares the parents of a bridge's spans with the calls that spec/otel/programs/requests.*
  # recorded.
  class Parents
    # "Work.outer12" or "outer12" is a call of worker 12.
    NAME = /(\w+?)(\d+)\z/
    NONE = ""

    # report: the program's report.
    def initialize(report)
      @shape = report.fetch("shape")
      @requests = report.fetch("requests").to_h { |request| [[request["trace"]].pack("H*"), request] }
      @children = 0
      @wrong = []
      @orphans = []
      @seen = Hash.new(0)
    end

    # Returns the expected number of children.
    def expected = all.size

    # Returns the number of slow calls in requests that are not sampled.
    def unsampled = @requests.each_value.count { |request| !request["sampled"] } * @shape.size

    # spans: result of OtlpServer#spans.
    def take(spans)
      spans = spans.map(&:last)
      @by_id = spans.to_h { |span| [span.span_id, span] }
      spans.each { |span| look(span) }
      @missing = all - @seen.keys
      self
    end

    def to_s
      "#{@children} children: #{@wrong.size} with a wrong parent, #{@orphans.size} without theirs, " \
      "#{@missing.size} missing"
    end

    private

    def all
      @requests.select { |_, request| request["sampled"] }.keys.product(@shape.keys)
    end

    def look(span)
      request = @requests[span.trace_id]
      parent = span.parent_span_id
      unless parent == NONE || own(request).value?(parent) || @by_id[parent]&.trace_id == span.trace_id
        @orphans << span
      end
      name, number = span.name.match(NAME)&.captures
      check(span, request, name, number.to_i) if @shape.key?(name)
    end

    def check(span, request, name, number)
      @children += 1
      @seen[[span.trace_id, name]] += 1
      above = @shape.fetch(name)
      right = request && request["sampled"] && request["number"] == number &&
              @seen[[span.trace_id, name]] == 1 &&
              (own(request)[above] == span.parent_span_id || call(span.parent_span_id) == [above, number])
      @wrong << span unless right
    end

    # Returns {name => id} of the application's spans of a request.
    def own(request) = request ? request["spans"].transform_values { |id| [id].pack("H*") } : {}

    # Returns [name, number] of the span with this id.
    def call(id)
      name, number = @by_id[id]&.name&.match(NAME)&.captures
      [name, number.to_i]
    end
  end
end
