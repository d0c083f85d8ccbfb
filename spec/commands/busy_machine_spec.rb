# frozen_string_literal: true

require "spec_helper"

# Ruby's samples are taken at ticks of the kernel, which few threads meet that wait for a CPU after each sleep.
RSpec.describe "hot and lines on a busy machine", :bpf do
  let(:work) do
    <<~RUBY
      puts "ready"
      $stdout.flush
      loop { 20_000.times { |i| i.to_s } }
    RUBY
  end

  # Processes that share one CPU.
  def on_one_cpu(*commands) = commands.map { |command| keep(Support::Child.new("taskset", "-c", "0", *command)) }

  it "say that samples are too few there" do
    ruby = target(work).ready
    system("taskset", "-a", "-c", "-p", "0", ruby.pid.to_s, out: File::NULL, exception: true)
    on_one_cpu([RbConfig.ruby, "-e", "loop {}"])
    %w[hot lines].each do |command|
      answer = probescope(command, "-p", ruby.pid, "-d", 2)
      expect(answer.err).to match(/machine is busy: threads of process #{ruby.pid} ran for \S+ m?s and waited \S+ m?s for a CPU/)
    end
    expect(probescope("alloc", "-p", ruby.pid, "-d", 1).err).not_to include("machine is busy")
  end
end
