# frozen_string_literal: true

require "spec_helper"

RSpec.describe "hot and lines on a busy machine", :bpf, full: "keeps a CPU busy with other processes" do
  # Starts processes that share CPU 0.
  def on_one_cpu(*commands)
    commands.map { |command| keep(Support::Child.new("taskset", "-c", "0", *command)) }
  end

  # Shares CPU 0 between the program and this number of busy processes (others).
  def expect_to_be_told(program, others)
    system("taskset", "-a", "-c", "-p", "0", program.pid.to_s, out: File::NULL, exception: true)
    on_one_cpu(*[[RbConfig.ruby, "-e", "loop {}"]] * others)
    %w[hot lines].each do |command|
      answer = probescope(command, "-p", program.pid, "-d", 2)
      expect(answer.err).to match(
        /machine is busy: threads of process #{program.pid} ran for \S+ m?s and waited \S+ m?s for a CPU/
      )
    end
    expect(probescope("alloc", "-p", program.pid, "-d", 1).err).not_to include("machine is busy")
  end

  it "say that samples of Ruby are too few there" do
    expect_to_be_told(target(<<~RUBY).ready, 1)
      puts "ready"
      $stdout.flush
      loop { 20_000.times { |i| i.to_s } }
    RUBY
  end

  it "say that samples of Python are too few there", :python do
    Dir.mktmpdir do |folder|
      File.write("#{folder}/work.py", <<~PYTHON)
        print("ready", flush=True)
        while True: [str(i) for i in range(20_000)]
      PYTHON
      expect_to_be_told(target("#{folder}/work.py").ready, 2)
    end
  end
end
