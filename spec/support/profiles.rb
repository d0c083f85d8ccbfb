# frozen_string_literal: true

require "probescope/profile/destination"
require "probescope/profile/pprof_reader"
require "probescope/profile/recorder"
require "probescope/profile/tables"
require "probescope/tracing/stack_lines"

module Support
  # Recordings of lines as stacks.bt prints them, without a tracer.
  module Profiles
    Profile = Probescope::Profile
    SECOND = 1_000_000_000
    # The time of day at which the recordings begin, in ns.
    BEGAN = 1_700_000_000 * SECOND

    module_function

    def lines(name) = File.readlines(File.join(ROOT, "spec/fixtures/profile/#{name}.lines"), chomp: true)

    def recorder(lines, **bounds)
      recorder = Profile::Recorder.new(Profile::KINDS, **bounds)
      stacks = Probescope::Tracing::StackLines.new(recorder)
      lines.each { |line| stacks.receive(line) }
      recorder
    end

    def recording(lines, **bounds)
      recorder = recorder(lines, **bounds)
      found = recorder.recording(metadata(recorder), [7])
      found.begin_ns = BEGAN
      found.duration_ns = 2 * SECOND
      found
    end

    def metadata(recorder, seconds: 2)
      {schema: 1, probescope: "0.1.0", kinds: Profile::KINDS.map(&:described), duration: 2.0,
       by_request: false, begin: "2023-11-14T22:13:20.000000Z", end: "2023-11-14T22:13:22.000000Z",
       seconds: seconds.to_f, bucket_ns: recorder.bucket_ns,
       processes: [{pid: 7, runtime: "ruby", version: "3.1.2", begin: "2023-11-14T22:13:20.000000Z",
                    end: "2023-11-14T22:13:22.000000Z", seconds: seconds.to_f, cpu_share: 0.55,
                    looking_share: 0.007273, left_out: nil, wall_ns: seconds * SECOND,
                    cpu_ns: 1_100_000_000, threads: {"71": "puma srv tp 001"}}],
       looking_share: 0.007273, own: {by: "process", globs: []},
       lost: {events: 0, rows: 2, samples: 1, paths: 0}, truncated: recorder.truncated, not_covered: [],
       warnings: [], interrupted: false, ended: false}
    end

    # A recording of so many seconds. The block returns {function => ms in that second}; functions of
    # the application call JSON.parse, which takes half of their time.
    def seconds(count, **bounds)
      lines = ["= 7 1 0 #{SECOND} 0 0 0 0 0 0", "p 7 2 100\t/srv/app.rb", "p 7 3 200\t/gems/json.rb"]
      add = ->(text) { lines << format(text, lines.size + 1) }
      count.times do |second|
        yield(second).each do |name, ms|
          id = name.sum
          add["f 7 %d #{id} 0 5 1 1 100\t#{name}"]
          add["f 7 %d #{id + 100_000} #{id} 3 1 0 200\tJSON.parse"]
          [id, id + 100_000].each { |one| add["s 7 %d 1 #{one} 71 0 #{ms} #{ms * 500_000} #{ms}"] }
        end
        passed = second + 1
        add["= 7 %d #{passed} #{(passed + 1) * SECOND} #{passed * SECOND} #{passed * SECOND / 2} " \
            "#{passed * 1_000_000} 0 0 #{passed * 40}"]
      end
      recorder = recorder(lines, **bounds)
      found = recorder.recording(metadata(recorder, seconds: count), [7])
      found.begin_ns = BEGAN
      found.duration_ns = count * SECOND
      found
    end

    def write(recording, path)
      Profile::Destination.new(path, force: true).write(recording)
      path
    end
  end
end
