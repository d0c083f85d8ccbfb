# frozen_string_literal: true

require "spec_helper"
require "support/redis"

# Jobs of real queues: spec/queues. `requests` must have the tries that the jobs and the queue
# count, and `exceptions --by-request` the exceptions that the jobs count. bin/test frameworks runs
# this; each example takes ten seconds.
RSpec.describe "probescope and jobs of", :bpf do
  directory = File.join(Support::ROOT, "spec/queues")
  bundled = [RbConfig.ruby, "-S", "bundle", "exec"]

  define_method(:need) do |what, found|
    next if found
    raise "needs #{what}: bin/setup frameworks" if ENV["PROBESCOPE_FRAMEWORKS"]

    skip "needs #{what}: bin/setup frameworks"
  end

  define_method(:need_gems) do
    options = {chdir: directory, unsetenv_others: true, out: File::NULL, err: File::NULL}
    need("the gems of spec/queues",
         system(Support.plain_env, RbConfig.ruby, "-S", "bundle", "check", **options))
  end

  define_method(:run) do |*command, env: {}, **options|
    keep(Support::Child.new(*command, env: Support.plain_env.merge(env), chdir: directory, **options))
  end

  def children(pid)
    Dir["/proc/#{pid}/task/*/children"].flat_map { |path| File.read(path).split.map(&:to_i) }
  end

  # Runs the block under the commands, in processes with this library. Returns what they report of
  # its jobs: {"Report 200" => 12}, {"JOB Report" => 66}.
  def told(process, pids, library, error)
    commands = [%w[requests], %w[exceptions --by-request]].map do |command|
      probescope_start(*command, "-p", process.pid, "--workers", "-d", 600, "--json", "--top", 0)
    end
    infos = pids.map { |pid| Support::Info.of(pid, library) }
    await("hooks in #{pids}", within: 60) do
      infos.all? { |info| info.state("exception__stats") == :on && info.semaphore("request__done").positive? }
    end
    flushed(infos)
    found = yield
    flushed(infos)
    requests, exceptions = commands.map do |command|
      expect(command.stop(:INT)).to be_success, command.to_s
      JSON.parse(command.out)["rows"]
    end
    tries = requests.flat_map do |row|
      row["statuses"].map { |status, number| ["#{row["route"]} #{status}", number] }
    end
    known = exceptions.select { |row| row["type"] == error && row["function"].end_with?("refuse") }
    raised = known.group_by { |row| row.values_at("method", "route").compact.join(" ") }
    [found, tries.to_h, raised.transform_values { |rows| rows.sum { |row| row["count"] } }, requests]
  end

  def flushed(infos)
    before = infos.map { |info| info.header[:flushes] }
    await("two flushes", within: 60) do
      infos.zip(before).all? { |info, number| info.header[:flushes] >= number + 2 }
    end
  end

  def named(raised)
    raised.reject { |_, number| number.zero? }.transform_keys do |name|
      name.include?(" ") ? name : "JOB #{name}"
    end
  end

  it "Sidekiq, also ActiveJob's: failures, retries, dead jobs, nested jobs and jobs that they enqueue" do
    need_gems
    need("Redis", Support::Redis.path)
    redis = {"REDIS_URL" => keep(Support::Redis.new).url}
    shop = lambda do |*arguments|
      client = run(*bundled, "ruby", "shop.rb", *arguments, env: redis)
      expect(client.wait(within: 60)).to be_success, client.to_s
      client
    end
    worker = run(*bundled, "sidekiq", "-r", "./shop.rb", "-c", "4", "-q", "mails", "-q", "default",
                 env: redis)
    await("sidekiq", within: 60) { Support::Info.of(worker.pid, Support::LIBRARY) && worker.alive? }
    shop.call("enqueue") # the first run loads code
    shop.call("settle", "102")
    _, tries, raised, requests = told(worker, [worker.pid], Support::LIBRARY, "ArgumentError") do
      shop.call("enqueue")
      shop.call("settle", "204")
    end
    expect(worker.stop(:TERM, within: 60)).to be_success
    counted = JSON.parse(shop.call("tell").out[/^\{.*/])
    halves = ->(numbers) { numbers.transform_values { |number| number / 2 } }
    expect(tries).to eq(halves.call(counted["tries"]))
    expect(tries).to eq("Report 200" => 12, "Receipt 200" => 6, "Label 200" => 12, "Fails 500" => 24,
                        "Dead 500" => 12, "Mailer 500" => 24, "Mailer 200" => 12)
    expect(raised).to eq(named(halves.call(counted["raised"])))
    # Sidekiq's own count: a try that ActiveJob handles is a success for Sidekiq, and Label is not a
    # job of Sidekiq.
    expect(counted.values_at("processed", "failed", "dead"))
      .to eq([2 * (tries.values.sum - 12), 2 * 36, 2 * 24])
    expect(requests.map { |row| row["method"] }.uniq).to eq(["JOB"])
  end

  it "ActiveJob with its own adapters: at once, within a request, and on threads" do
    need_gems
    process = run(*bundled, "ruby", "inline.rb", stdin: true)
    process.await_line(/^ready$/, within: 60)
    counted, tries, raised, = told(process, [process.pid], Support::LIBRARY, "ArgumentError") do
      process.puts("go")
      JSON.parse(process.await_line(/^\{.*$/, within: 60)[0])
    end
    expect(tries.delete("/desk 200")).to eq(12)
    expect(tries).to eq(counted["tries"].reject { |_, number| number.zero? })
    expect(tries).to eq("Report 200" => 12, "Label 200" => 24, "Fails 500" => 12, "Discarded 500" => 12)
    expect(raised).to eq(counted["raised"])
  end

  # Debian's packages are for Debian's Python, if no other Python has them.
  python = [Support::Python.interpreter, "/usr/bin/python3"].uniq.find do |path|
    system(Support.plain_env, path, "-c", "import celery, redis", unsetenv_others: true, err: File::NULL)
  end
  {"processes" => %w[--pool prefork -c 2], "threads" => %w[--pool threads -c 4]}.each do |pool, options|
    it "Celery, in #{pool}: failures, retries, nested tasks and tasks that they start" do
      need("Redis", Support::Redis.path)
      need("celery and redis for Python", python)
      env = {"REDIS_URL" => keep(Support::Redis.new).url, **Support::Python.env(loaded: false)}
      worker = run(python, "-m", "celery", "-A", "shop", "worker", *options, "--loglevel", "INFO", env: env)
      await("celery", within: 60) { (worker.out + worker.err).include?("ready.") }
      pids = options.include?("prefork") ? children(worker.pid) : [worker.pid]
      library = Support::Python.library
      shop = lambda do |expected|
        client = run(python, "shop.py", expected.to_s, env: env)
        expect(client.wait(within: 60)).to be_success, client.to_s
        JSON.parse(client.out)
      end
      shop.call(90)
      counted, tries, raised, requests = told(worker, pids, library, "ValueError") { shop.call(180) }
      halves = ->(numbers) { numbers.transform_values { |number| number / 2 } }
      expect(tries).to eq(halves.call(counted["tries"]))
      expect(tries).to eq("shop.report 200" => 12, "shop.receipt 200" => 6, "shop.label 200" => 12,
                          "shop.fails 500" => 12, "shop.retries 500" => 24, "shop.retries 200" => 12,
                          "shop.ignores 200" => 12)
      expect(raised).to eq(named(halves.call(counted["raised"])))
      # Celery counts received tasks, not tasks that run at once.
      told_of = tries.group_by { |name, _| name.split.first }
                     .transform_values { |rows| rows.sum(&:last) }.except("shop.label")
      expect(halves.call(counted["totals"])).to eq(told_of)
      expect(requests.map { |row| row["method"] }.uniq).to eq(["JOB"])
    end
  end
end
