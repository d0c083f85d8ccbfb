# frozen_string_literal: true

# Measures what request probes cost a request, in Rack, WSGI and ASGI. The bare application and the
# one within the middleware take turns in one process, without a tracer and under `probescope
# requests`. Writes its section of docs/performance.md.
#
#   bundle exec rake bench:requests                             # half a minute, as root
#   PYTHON=/path/to/python3 bundle exec rake bench:requests     # which imports probescope
require "open3"
%w[paths await elf info child target bpf tracer].each { |name| require_relative "../spec/support/#{name}" }
require_relative "performance_page"

class RequestCosts
  include Support::Await

  def write
    rows = subjects.map { |name, *command| [name, *measure(command)] }
    PerformancePage.write("bench/requests.rb", section_of(rows))
  end

  private

  def subjects
    python = ENV.fetch("PYTHON", "python3")
    version, = Open3.capture2(python, "-c", "import platform; print(platform.python_version())")
    path = ["python", *ENV.fetch("PYTHONPATH", nil)].join(":")
    pythons = %w[WSGI ASGI].map do |kind|
      ["#{kind}, CPython #{version.strip}", "env", "PYTHONPATH=#{path}", python, "bench/requests.py", kind]
    end
    [["Rack, Ruby #{RUBY_VERSION}", RbConfig.ruby, "-Ilib", "bench/requests_rack.rb"], *pythons]
  end

  # Returns [ns of the bare application, within the middleware; both again, attached; idle within an
  # object that only awaits the application].
  def measure(command)
    subject = Support::Child.new(*command)
    idle = subject.await_line(/^idle (.*)$/, within: 120)[1]
    program = File.read("providers/requests.bt").gsub("$1", "*").gsub("$#", "1")
    tracer = Support::Tracer.new(program, pid: subject.pid)
    attached = subject.await_line(/^attached (.*)$/, within: 120)[1]
    idle, attached = [idle, attached].map { |line| line.split.map(&:to_f) }
    [*idle.first(2), *attached.first(2), idle[2]]
  ensure
    tracer&.stop(:INT)
    subject&.kill_all
  end

  def section_of(rows)
    object = rows.filter_map { |row| row[5] && (row[5] - row[1]) }.first
    lines = rows.map do |name, bare, idle, again, attached, _|
      format("| %s | %.0f | %.0f | %.0f | %.0f | %.0f |\n",
             name, bare, idle, idle - bare, attached, attached - again)
    end
    <<~MARKDOWN
      <!-- bench/requests.rb -->
      ## A request

      Figures are ns of a call of an application that answers at once: bare, and within the
      middleware. "Idle" is without a tracer; "attached" is under `probescope requests`, which
      counts each request. Figures are medians of 501 turns in one process (`bundle exec rake
      bench:requests`; #{`uptime`[/load average.*/]}).

      | | bare | within, idle | added, idle | within, attached | added, attached |
      |---|---|---|---|---|---|
      #{lines.join}
      Of the time that ASGI's middleware adds while idle, #{format("%.0f", object)} ns are the cost
      of any object whose `async def __call__` only awaits the application: CPython looks up the
      method at each call, and makes one more coroutine. The middleware must be an object, because
      it forwards the application's attributes.
      <!-- end of bench/requests.rb -->
    MARKDOWN
  end
end

RequestCosts.new.write if $PROGRAM_NAME == __FILE__
