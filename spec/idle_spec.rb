# frozen_string_literal: true

require "open3"

# Idle means idle, in instructions and not in nanoseconds: valgrind counts them, so the machine's speed plays no part.
RSpec.describe "A process that nobody traces" do
  # Callgrind slows Ruby down fifty times, so the difference of a long and a short run is what a call costs: start-up
  # cancels out. Only the main thread is counted; the library's watcher has one of its own.
  #
  # Both processes have a second thread, as an application server has: glibc's malloc takes locks from the second thread
  # on, whoever starts it, and that is the one difference (1 % of a raise) that a process of a single thread would see.
  let(:short) { 20_000 }
  let(:long) { 120_000 }
  let(:setup) { "GC.disable; Thread.new { sleep }; def callee(x) = x; class Thing; def initialize = @a = 1; end\n" }

  # Instructions that the main thread spends on one turn of the block.
  def instructions(work, loaded:)
    per_run = [short, long].map { |turns| callgrind("i = 0; while i < #{turns}; #{work}; i += 1; end", loaded: loaded) }
    (per_run[1] - per_run[0]) / (long - short).to_f
  end

  def callgrind(program, loaded:)
    preload = loaded ? ["-r#{Support::AUTO}"] : []
    Dir.mktmpdir do |dir|
      out = "#{dir}/callgrind.out"
      command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", "--callgrind-out-file=#{out}",
                 RbConfig.ruby, "--disable-gems", *preload, "-e", setup + program]
      text, status = Open3.capture2e(Support.plain_env, *command, unsetenv_others: true)
      raise text unless status.success?

      File.read("#{out}-01")[/^(?:summary|totals): (\d+)/, 1].to_i
    end
  end

  before { skip "valgrind is not installed" unless system("sh", "-c", "command -v valgrind >/dev/null") }

  works = { "a method call" => "callee(i)", "an allocation" => "Thing.new", "a raise" => "begin; raise 'x'; rescue; end" }
  works.each do |what, work|
    it "spends no more instructions on #{what} with the library loaded" do
      # Addresses decide how far Ruby's own tables probe, so now and then two runs of the same program differ by more.
      attempts do
        plain = instructions(work, loaded: false)
        loaded = instructions(work, loaded: true)
        expect(loaded).to be <= plain * 1.001
      end
    end
  end
end
