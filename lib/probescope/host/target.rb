# frozen_string_literal: true

require "digest"
require_relative "elf"
require_relative "error"
require_relative "info"
require_relative "mappings"
require_relative "names"
require_relative "own_probes"

module Probescope
  module Host
    # A process with the library in it. Runs in the helper, because other users' memory takes privilege.
    class Target
      SYMBOL = "probescope_info"
      HOW_TO_LOAD = "start it with `probescope run -- COMMAND`, or add `gem \"probescope\", require: \"probescope/auto\"` " \
                    "to its Gemfile and restart it"
      HOW_TO_LOAD_PYTHON = "install the package for its Python (`pip install /path/to/checkout`), then start it with " \
                           "`probescope run -- COMMAND`; on Python 3.14 and later `venv/bin/probescope attach PID`, of the package, " \
                           "loads it into the running one"
      # A library is a few hundred KB; a hostile file may be any size.
      MAX_DIGESTED = 16 << 20

      NotLoaded = Class.new(Error)

      # Virtual address of the symbol (or nil) by file id: one library is mapped by many processes.
      @symbols = {}
      @digests = {}

      attr_reader :pid, :file, :info

      class << self
        # Raises Error, with the next step, when there is nothing to trace.
        def find(pid)
          check_process(pid)
          locate(pid) || raise(NotLoaded.new("process #{pid} does not have probescope loaded", how_to_load(pid)))
        rescue Errno::EACCES, Errno::EPERM
          raise Error.new("process #{pid} may not be read", "run the command as root, or as a user who may use sudo")
        rescue Errno::ENOENT, Errno::ESRCH, EOFError
          raise ended(pid)
        end

        def ended(pid) = Error.new("process #{pid} has just ended", "`probescope ps` lists the processes that can be traced")

        # The next step for a process without the library.
        def how_to_load(pid)
          python?(pid) ? HOW_TO_LOAD_PYTHON : HOW_TO_LOAD
        rescue SystemCallError
          HOW_TO_LOAD
        end

        # A Target, or nil where there is none.
        def try(pid)
          locate(pid)
        rescue SystemCallError, EOFError, Error
          nil
        end

        # Every process with the library, and how many processes could not be looked at: [[Target, ...], Integer].
        def all
          unreadable = 0
          targets = Dir.children("/proc").grep(/\A\d+\z/).map(&:to_i).sort.filter_map do |pid|
            locate(pid)
          rescue Errno::EACCES, Errno::EPERM
            unreadable += 1
            nil
          rescue SystemCallError, EOFError, Error
            nil
          end
          [targets, unreadable]
        end

        # What tells two library files apart. Their devices do not: one file in a layer below several overlay mounts shows a
        # device for each of them, and yet it is one file for the kernel's probes.
        def identity(file)
          @digests[file.id] ||= [file.id.last, file.open { |io| Digest::SHA256.hexdigest(io.read(MAX_DIGESTED).to_s) }]
        rescue SystemCallError
          [file.id.last, nil]
        end

        private

        # Started as python, or with it inside, as in uWSGI.
        def python?(pid)
          Mappings.files(pid).any? { |file| File.basename(file.path).match?(/\A(lib)?python\d/) }
        end

        def check_process(pid)
          status = File.read("/proc/#{pid}/status")
          group = status[/^Tgid:\s+(\d+)/, 1].to_i
          raise Error.new("#{pid} is a thread of process #{group}", "use -p #{group}") if group != pid
          raise Error.new("process #{pid} has ended and waits for its parent (zombie)", nil) if status.match?(/^State:\s+[ZX]/)
        rescue Errno::ENOENT, Errno::ESRCH
          raise Error.new("there is no process #{pid}", "`probescope ps` lists the processes that can be traced")
        end

        def locate(pid)
          Mappings.files(pid).each do |file|
            symbol = symbol_in(file)
            return new(pid, file, symbol) if symbol
          end
          nil
        end

        def symbol_in(file)
          return @symbols[file.id] if @symbols.key?(file.id)

          @symbols[file.id] = file.open { |io| Elf.new(io).symbol(SYMBOL) }
        rescue SystemCallError, EOFError, TypeError
          @symbols[file.id] = nil
        end
      end

      def initialize(pid, file, symbol)
        @pid = pid
        @file = file
        bias = file.open { |io| Elf.new(io).bias(file.start) }
        @info = Info.new(File.open("/proc/#{pid}/mem", "rb"), symbol + bias)
        @born = born
      end

      # False as soon as the process has ended, also when its number has been given to another one.
      def alive? = !@born.nil? && born == @born

      # See Target.identity.
      def identity = self.class.identity(file)

      # False when bpftrace would not find the library through its path: it was deleted or replaced.
      def on_disk?
        !file.deleted? && File.stat("/proc/#{pid}/root#{file.path}").ino.to_s == file.id.last
      rescue SystemCallError
        false
      end

      # For the command, as plain data. Raises as Info#snapshot.
      def to_h
        info.snapshot.merge(pid: pid, name: name, path: file.path.dup.force_encoding(Encoding::UTF_8).scrub, deleted: !on_disk?)
      end

      # For `status` and `doctor`: the same with whether each probe is `listened` to now, and `own` (OwnProbes).
      def to_status
        known = to_h
        probes = known[:probes].transform_values { |probe| probe.merge(listened: listened(probe[:semaphore])) }
        known.merge(probes: probes, own: OwnProbes.of(pid) { |semaphore| listened(semaphore) })
      rescue Errno::ENOENT, Errno::ESRCH, EOFError
        raise self.class.ended(pid)
      end

      # See Names; empty when it is gone.
      def name = Names.best(pid) || ""

      private

      # nil where nothing says so.
      def listened(semaphore)
        info.tracers(semaphore).positive? unless semaphore.zero?
      rescue SystemCallError, EOFError, RangeError
        nil
      end

      # Start time in ticks after boot; nil when the process is gone or a zombie.
      def born
        fields = File.read("/proc/#{pid}/stat").rpartition(") ").last.split
        fields[19] unless %w[Z X].include?(fields[0])
      rescue SystemCallError
        nil
      end
    end
  end
end
