# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "support/hostile_programs"
require "probescope/abi"

# PROBESCOPE_HOSTILE=callers runs only the programs with that word in their name.
RSpec.describe "a hostile program", :bpf do
  listen = File.join(__dir__, "support/listen.rb")
  at_once = 4

  # Attaches to every process that maps the library, also to later ones.
  def attach_to_all
    keeper = target("puts 'ready'; $stdout.flush; loop { sleep 0.02 }").ready
    tracer = attacher(keeper, *Probescope::ABI::PROBES.keys.map(&:to_s), by_path: true)
    tracer.attached(within: 60)
    tracer
  end

  # Returns what the program wrote and how it ended, without addresses and process ids.
  def outcome(path, listen, env)
    child = keep(Support::Child.new(RbConfig.ruby, "-w", "-r#{listen}", path,
                                    env: Support.plain_env.merge(env)))
    status = child.wait(within: 120)
    texts = { out: child.out, err: child.err }
    texts.transform_values { |text| text.b.gsub(/0x\h+/, "0x").gsub(/(?<=pid )\d+/, "N") }
         .merge(status: [status.exitstatus, status.termsig])
  end

  it "writes and ends with every probe attached as it does without probescope" do
    tracer = attach_to_all
    todo = Queue.new
    HOSTILE_PROGRAMS.each do |name, source|
      todo << [name, source] if name.include?(ENV.fetch("PROBESCOPE_HOSTILE", ""))
    end
    differing = {}
    Dir.mktmpdir("probescope") do |directory|
      Array.new(at_once) do
        Thread.new do
          while (name, source = todo.pop(true) rescue nil)
            File.write(path = File.join(directory, "program#{todo.size}.rb"), source)
            plain, traced = [{}, { "TRACED" => Support::AUTO }].map { |env| outcome(path, listen, env) }
            both = plain.keys.to_h { |key| [key, [plain[key], traced[key]]] }
            differing[name] = both.reject { |_, (a, b)| a == b }
          end
        end
      end.each(&:join)
    end
    expect(differing.reject { |_, difference| difference.empty? }).to eq({})
    expect(differing.size).to be >= 20 unless ENV["PROBESCOPE_HOSTILE"]
    tracer.puts("count")
    expect(Integer(tracer.await_line(/\Acount=(\d+)/)[1])).to be_positive
  end
end
