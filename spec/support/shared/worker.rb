# frozen_string_literal: true

require "support/host_helpers"
require "support/schemas"

# A Ruby process whose Shop works once for each SIGUSR1. The source has the class Shop with its
# method work. The process gets the name of an empty folder as its argument.
RSpec.shared_context "with a worker" do |source|
  serves = <<~'RUBY'

    class Main
      def serve
        trap("USR1") { $go = true }
        shop = Shop.new
        puts "ready"
        loop do
          sleep 0.01
          next unless $go

          $go = false
          shop.work
          puts "worked"
        end
      end
    end

    Main.new.serve
  RUBY

  define_method(:write_worker) do |text|
    File.write(File.join(@folder, "worker.rb"), "$stdout.sync = true\n#{text}#{serves}")
  end

  before do
    @folder = Dir.mktmpdir
    write_worker(source)
  end
  after { FileUtils.rm_rf(@folder) }

  def shop = @shop ||= start
  def start = target(File.join(@folder, "worker.rb"), @folder).ready

  # Starts the command for each list of words. Returns when the intervals of all have begun.
  def tracing(name, *lists, processes: [shop])
    pids = processes.flat_map { |process| ["-p", process.pid] }
    commands = lists.map { |words| probescope_start(name, *words, *pids, "-d", 600, "--json") }
    # A command prints this when all its probes are attached. The second flush after that is in its
    # interval.
    commands.each do |command|
      command.await_line(/probescope: (listens to|stops each call)/, stream: :err, within: 600)
    end
    processes.each { |process| await_intervals(process) }
    commands
  end

  def await_intervals(process)
    process.await_on("function__here")
    flushes = process.info.header[:flushes]
    await("its interval", within: 60) { process.info.header[:flushes] >= flushes + 3 }
  end

  def work_once(*processes)
    processes.each do |process|
      process.signal(:USR1)
      process.await_line(/\Aworked$/)
    end
  end

  # Ends the commands. Returns their JSON.
  def results(name, commands)
    commands.map do |command|
      expect(command.stop(:INT).exitstatus).to eq(0), command.err
      JSON.parse(command.out).tap { |told| expect(told).to fit_the_schema_of(name) }
    end
  end
end
