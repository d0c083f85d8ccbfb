# frozen_string_literal: true

require "socket"
require "spec_helper"
require "support/framework"

# Web frameworks on their usual servers, under load. `probescope requests` must have the client's
# counts by route and status, and the client's times without the network. bin/test frameworks runs
# this; each example takes ten seconds.
RSpec.describe "probescope requests and", :bpf do
  nap = 20

  # The requests, and the route expected for each.
  own = lambda do |order, orders, naps, things|
    {"Get /orders/N" => order, "Get /orders" => orders, "Post /orders" => orders, "Get /naps/#{nap}" => naps,
     "Get /nothing/N" => "(not found)", "Head /orders/1" => order, **things}
  end
  puma = [RbConfig.ruby, "-S", "bundle", "exec", "puma", "-C", "puma.rb"]
  falcon = [RbConfig.ruby, "-S", "bundle", "exec", "falcon", "serve", "--count", "2", "--config"]
  gunicorn = [Support::Python.interpreter, "-m", "gunicorn", "--workers", "2", "--bind", "127.0.0.1:0"]
  uvicorn = [Support::Python.interpreter, "-m", "uvicorn", "--workers", "2", "--port"]
  ruby = own.call("/orders/:id", "/orders", "/naps/:ms", {})
  python = own.call("/orders/<int:number>", "/orders", "/naps/<int:ms>",
                    {"Get /desk/things/sN" => "/desk/things/<name>"})
  django = own.call("/orders/<int:number>", "/orders", "/naps/<ms>",
                    {"Get /desk/things/sN" => "/desk/things/<slug:name>",
                     "Get /api/v1/issues/N/" => "/api/v<version>/issues/<pk>/",
                     "Get /api/v2/issues/N.json" => "/api/v<version>/issues/<pk>.<format>",
                     "Get /archive/2024/N/" => "/archive/<int:year>/<var>/"})

  # [name, language, Python modules, command, environment, routes]
  [
    ["Rails on Puma, with bootsnap, an engine, Grape and Sinatra", :ruby, [], [*puma, "rails.ru"], {},
     {**ruby, "Get /desk/things/sN" => "/desk/things/:name", "Get /api/things/sN" => "/api/things/:name",
              "Get /old/things/sN" => "/old/things/:name", "Get /rack/N" => "/rack",
              "Get /moved/N" => "/moved/:id"}],
    ["Sinatra on Puma, with bootsnap, within Rack::Lint and around it", :ruby, [], [*puma, "sinatra.ru"], {},
     {**ruby, "Get /called" => "/called", "Get /hijacked" => "/hijacked"}],
    ["Sinatra on Falcon, whose requests are fibers", :ruby, [], [*falcon, "sinatra.ru", "--bind"],
     {"FALCON" => "1"}, {**ruby, "Get /called" => "/called"}],
    ["Flask on gunicorn", :python, %w[flask gunicorn], [*gunicorn, "--preload", "flask_app"], {}, python],
    ["Flask on gunicorn with gevent", :python, %w[flask gunicorn gevent],
     [*gunicorn, "-k", "gevent", "flask_app"], {}, python],
    ["Django on gunicorn", :python, %w[django gunicorn], [*gunicorn, "--preload", "django_app"], {}, django],
    ["Django on uvicorn", :python, %w[django uvicorn], [*uvicorn, "PORT", "django_app:application"],
     {"ASGI" => "1"}, django],
    ["Starlette on uvicorn", :python, %w[starlette uvicorn], [*uvicorn, "PORT", "starlette_app:application"],
     {}, own.call("/orders/{number:int}", "/orders", "/naps/{ms}",
                  {"Get /desk/things/sN" => "/desk/things/{name}"})]
  ].each do |what, kind, modules, command, env, routes|
    it "#{what}: has the client's counts, with its routes, statuses, errors and times" do
      Support::Framework.require!(kind, *modules) { |reason| skip reason }
      app = keep(Support::Framework.new(kind, *with_port(command), env: env)).ready
      trace = probescope_start("requests", "-p", app.pid, "--workers", "-d", 600, "--json", "--top", 0)
      await_counting(app)
      asked = load(app, routes)
      asked[["GET", routes.fetch("Get /orders")]] << hung_up(app, "/orders")
      flushed(app)
      expect(trace.stop(:INT)).to be_success, trace.to_s
      answer = JSON.parse(trace.out)
      rows = answer["rows"].group_by { |row| row.values_at("method", "route") }
      rows.reject! { |(_, route), _| route == "(not found)" } unless asked.key?(["GET", "(not found)"])
      compare(rows, asked, nap * 1_000_000)
      expect(answer["lost"].values).to all(eq(0))
      expect(trace.err).not_to match(/nothing in |no room/)
    end
  end

  # Returns the rows of `alloc --by-request` for 75 pages, which two clients request.
  def alloc_of_pages(env)
    puma = [RbConfig.ruby, "-S", "bundle", "exec", "puma", "-b", "tcp://127.0.0.1:0", "-t", "2:2",
            "-e", "production", "wide.ru"]
    app = keep(Support::Framework.new(:ruby, *puma, env: env)).ready(workers: 0)
    trace = probescope_start("alloc", "--by-request", "-p", app.pid, "-d", 600, "--json")
    info = app.info(app.pid)
    await("the hooks", within: 60) do
      app.ask("/page0/0") &&
        info.state("object__stats") == :on && info.semaphore("stats__by_request").positive?
    end
    await_told(app, info)
    clients = Array.new(2) { |client| Thread.new { 75.times { |page| app.ask("/page#{page}/#{client}") } } }
    clients.each(&:join)
    await_told(app, info)
    expect(trace.stop(:INT)).to be_success, trace.to_s
    stop_processes
    JSON.parse(trace.out)
  end

  def await_told(app, info)
    before = info.header[:flushes]
    await("what was asked to be told in #{app}", within: 60) { info.header[:flushes] >= before + 2 }
  end

  # The first page is requested until the hooks are in, so it is left out.
  def by_route(rows)
    rows.select { |row| row["route"].to_s.match?(%r{^/page[1-9]}) }.group_by { |row| row["route"] }
  end

  it "a Rails application of 75 pages: alloc --by-request has every row, or the largest rows if " \
     "its tables are full" do
    Support::Framework.require!(:ruby) { |reason| skip reason }
    whole = alloc_of_pages({})
    expect(whole["lost"]).to include("map_full" => 0, "rows" => 0)
    pages = by_route(whole["rows"])
    expect([pages.size, whole["rows"].size]).to match([74, be > 16_384])

    part = alloc_of_pages("PROBESCOPE_MEMORY" => "10M")
    expect(part["lost"]).to include("map_full" => 0, "rows" => be_positive)
    expect(part["rows"].size).to be < 15_000
    found = by_route(part["rows"])
    # Each page has all its allocations, and its largest rows, even if the tables were full when the
    # row came.
    counts = ->(rows) { rows.sum { |row| row["count"] } }
    wanted = pages.transform_values { |rows| be_within(counts.call(rows) * 0.2).of(counts.call(rows)) }
    expect(found.transform_values(&counts)).to match(wanted)
    expect(found["/page74/:id"].map { |row| row["class"] }).to include("(overflow)")
    large = found["/page74/:id"].reject { |row| row["class"] == "(overflow)" }.map do |row|
      row.values_at("class", "file", "line")
    end
    expect(large)
      .to include(*pages["/page74/:id"].first(3).map { |row| row.values_at("class", "file", "line") })
  end

  # Gives a port to servers that do not print theirs.
  def with_port(command)
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1].to_s }
    command = command.map { |word| word == "PORT" ? port : word }
    command.last == "--bind" ? [*command, "http://127.0.0.1:#{port}"] : command
  end

  # A request wakes a sleeping VM. These requests count, too, as "not found".
  def await_counting(app)
    @warm = 0
    app.workers.each do |pid|
      info = app.info(pid)
      await("the hooks of #{pid} in #{app}", within: 60) { warm(app) && info.state("request__done") == :on }
      before = info.header[:flushes]
      await("two flushes of #{pid}") { info.header[:flushes] >= before + 2 }
    end
  end

  def warm(app) = app.ask("/orders/warm", "Delete")

  def flushed(app)
    app.workers.each do |pid|
      before = app.info(pid).header[:flushes]
      await("what was asked to be told") { app.info(pid).header[:flushes] >= before + 2 }
    end
  end

  # Four clients. Returns {[method, route] => [[status, ns], ...]}.
  def load(app, routes, rounds: 12)
    clients = Array.new(4) do |client|
      Thread.new do
        all = Array.new(rounds) do |round|
          routes.map { |how, route| [route, *timed(app, how, (round * 4) + client + 1)] }
        end
        all.flatten(1)
      end
    end
    clients.flat_map(&:value).group_by { |route, method, *| [method, route] }.transform_values do |same|
      same.map { |one| one.drop(2) }
    end
  end

  def timed(app, how, number)
    method, path = how.split
    before = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    code = app.ask(path.sub("N", number.to_s), method).code
    [method.upcase, code, Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - before]
  end

  # Disconnects before the body comes. The request must end like any other.
  def hung_up(app, path)
    uri = URI(app.url)
    before = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    TCPSocket.open(uri.host, uri.port) do |socket|
      socket.write("GET #{path} HTTP/1.1\r\nHost: #{uri.host}\r\n\r\n")
      socket.readpartial(1)
      socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_LINGER, [1, 0].pack("ii")) # a reset
    end
    ["200", Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - before]
  end

  def compare(rows, asked, nap)
    rows = rows.reject { |(method, _), _| method == "DELETE" }
    statuses = rows.transform_values { |same| same.to_h { |row| [row["status"], row["statuses"]] } }
    answered = asked.transform_values do |all|
      all.map(&:first).group_by { |code| "#{code[0]}xx" }.transform_values(&:tally)
    end
    expect(statuses).to eq(answered)
    asked.each do |key, all|
      rows.fetch(key).each do |row|
        compare_times(key, row, all.select { |code, _| code[0] == row["status"][0] }.map(&:last), nap)
      end
      expect(rows[key].sum { |row| row["errors"] }).to eq(all.count { |code, _| code >= "500" })
    end
  end

  # Approximate, because the client's time includes the application and the network, but not the
  # server's close of the body.
  def compare_times((_, route), row, times, nap)
    expect(row["p50_ns"]).to be <= times.max
    return unless row["status"] == "2xx" &&
                  (route.include?("naps") || (route == "/orders" && row["method"] == "GET"))

    expect(row["p50_ns"]).to be >= (route.include?("naps") ? nap : 6_000_000) * 0.96
  end
end
