# frozen_string_literal: true

require "spec_helper"

# Both commands trace a Ruby process and its forked child at once. Both processes do the same work
# on a signal.
RSpec.describe "exceptions and backtraces on Ruby processes", :bpf do
  # For probescope this is the code of a gem.
  library = <<~RUBY
    module Library
      class Bad < StandardError; end
      def self.refuse = raise(Bad, "no")
      def self.log(e) = e.full_message(highlight: false)
    end
  RUBY
  work = <<~RUBY
    require_relative "vendor/library"

    class Shop
      def deep(levels, &block) = levels.zero? ? block.call : deep(levels - 1, &block)

      def guess
        Integer("none") rescue 0
      end

      def guess_in_block
        [1].each { Float("none") rescue 0 }
      end

      def asks_gem = Library.refuse

      def sells
        asks_gem
      rescue Library::Bad => e
        Library.log(e)
      end

      def drops
        asks_gem
      rescue Library::Bad
        nil
      end

      def shows
        raise KeyError, "shown"
      rescue KeyError => e
        e.backtrace
      end

      def where = caller(1, 5)
    end

    $stdout.sync = true
    trap("USR1") { $go = true }
    child = fork
    puts "ready \#{Process.pid}"
    shop = Shop.new
    loop do
      sleep 0.01
      next unless $go

      $go = false
      Process.kill("USR1", child) if child
      shop.deep(30) do
        400.times { shop.guess }
        100.times { shop.guess_in_block }
        200.times { shop.sells }
        300.times { shop.drops }
        150.times { shop.shows }
        250.times { shop.where }
      end
      puts "worked \#{Process.pid}"
    end
  RUBY

  before do
    @folder = Dir.mktmpdir
    FileUtils.mkdir_p(File.join(@folder, "vendor"))
    File.write(File.join(@folder, "vendor/library.rb"), library)
    File.write(File.join(@folder, "shop.rb"), work)
  end
  after { FileUtils.rm_rf(@folder) }

  define_method(:line_of) { |text| work.lines.index { |line| line.include?(text) } + 1 }
  # Matches a place by its end: shop.rb and the line of this text.
  define_method(:at) { |text| end_with("/shop.rb:#{line_of(text)}") }

  it "name the lines that raised, rescued at once and asked for strings, and give the same cost" do
    ruby = target(File.join(@folder, "shop.rb"), chdir: @folder)
    ruby.await_line(/\Aready #{ruby.pid}$/)
    child = ruby.await_line(/\Aready (?!#{ruby.pid}$)(\d+)$/)[1].to_i
    commands = {"exceptions" => ["-p", ruby.pid, "-p", child],
                "backtraces" => ["-p", ruby.pid, "--workers", "--by-pid"]}
               .to_h { |name, which| [name, probescope_start(name, *which, "-d", 600, "--json", "--top", 0)] }
    [ruby.pid, child].each do |pid|
      ruby.await_on("exception__stats", "backtrace__done", of: pid)
      before = ruby.info(pid).header[:flushes]
      await("the interval of #{pid}") { ruby.info(pid).header[:flushes] >= before + 3 }
    end
    ruby.signal(:USR1)
    [ruby.pid, child].each { |pid| ruby.await_line(/\Aworked #{pid}$/, within: 60) }
    rows = commands.transform_values do |command|
      expect(command.stop(:INT).exitstatus).to eq(0), command.err
      JSON.parse(command.out)["rows"]
    end

    raised = rows["exceptions"].to_h { |row| [row["line"] == 3 ? "library" : row["line"], row] }
    told = RUBY_VERSION >= "3.3"
    expect(raised[line_of("Integer(")]).to include(
      "type" => "ArgumentError", "count" => 2 * 400, "file" => end_with("/shop.rb"), "strings_ns" => 0,
      "formatted_at" => nil,
      "app_at" => nil, "rescued_at_once_share" => told ? 1.0 : nil,
      "rescued_at" => told ? at("Integer(") : nil
    )
    expect(raised[line_of("Float(")])
      .to include("count" => 2 * 100, "rescued_at_once_share" => told ? 1.0 : nil)
    expect(raised[line_of("raise KeyError")]).to include(
      "count" => 2 * 150, "strings_ns" => be_positive, "formatted_at" => at("e.backtrace"), "app_at" => nil,
      "rescued_at_once_share" => told ? 1.0 : nil
    )
    expect(raised["library"]).to include(
      "type" => "Library::Bad", "file" => end_with("/vendor/library.rb"), "count" => 2 * 500,
      "strings_ns" => be_positive,
      "formatted_at" => at("Library.log"), "app_at" => at("Library.refuse"),
      "rescued_at_once_share" => told ? 0.0 : nil
    )
    expect(rows["exceptions"])
      .to all(satisfy { |row| row["backtrace_cost_ns"] == row["capture_ns"] + row["strings_ns"] })

    [ruby.pid, child].each do |pid|
      asked = rows["backtraces"].select { |row| row["pid"] == pid }
      expect(asked.to_h { |row| [row["line"], row.values_at("call", "count", "function", "type")] }).to eq(
        line_of("Library.log") => ["full_message", 200, "Shop#sells", "Library::Bad"],
        line_of("e.backtrace") => ["backtrace", 150, "Shop#shows", "KeyError"],
        line_of("caller(1") => ["caller", 250, "Shop#where", nil]
      )
      expect(asked.find { |row| row["call"] == "caller" }).to include("mean_depth" => 5.0, "raised_at" => nil)
      expect(asked.find { |row| row["call"] == "backtrace" })
        .to include("mean_depth" => be > 30, "raised_at" => at("raise KeyError"))
    end
    # Each total is rounded to a ns.
    {"library" => "full_message", line_of("raise KeyError") => "backtrace"}.each do |place, call|
      total = rows["backtraces"].select { |row| row["call"] == call }.sum { |row| row["total_ns"] }
      expect(raised[place]["strings_ns"]).to be_within(1000).of(total)
    end
  end
end
