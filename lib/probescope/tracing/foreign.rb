# frozen_string_literal: true

require "digest"
require_relative "c_function"
require_relative "elf"
require_relative "entry_point"
require_relative "identity"
require_relative "info"
require_relative "library"
require_relative "mappings"
require_relative "names"
require_relative "own_probes"
require_relative "refused"

module Probescope
  module Tracing
    # Everything that is read from foreign processes, and from the files that they map, is read
    # here. It runs in a child (Reader) of the privileged process, because a mapped file may block
    # its reader: a file on FUSE can block open, read, and access to its memory.
    #
    # Each question returns plain data. A failure is raised as a Refused with a reason; Reader turns
    # any other exception into a Refused.
    module Foreign
      SYMBOL = "probescope_info"
      HOW_TO_LOAD = "start it with `probescope run -- COMMAND`, or add " \
                    "`gem \"probescope\", require: \"probescope/auto\"` to its Gemfile and restart it; " \
                    "where that was done, `probescope doctor` (`bundle exec` in the Gemfile's folder) " \
                    "says whether the library was built for its Ruby"
      HOW_TO_LOAD_PYTHON = "install the package for its Python (`pip install /path/to/checkout`), then " \
                           "start it with `probescope run -- COMMAND`; on Python 3.14 and later " \
                           "`venv/bin/probescope attach PID`, of the package, loads it into the running one"
      # The place of probescope_info in a process. born: the process's start time in ticks after
      # boot.
      Place = Struct.new(:pid, :born, :file, :address)
      # For how many seconds an offset in a file stays valid: long enough for one survey of all
      # processes.
      FRESH = 2.0

      # Offset of the symbol from the file's first byte (or nil), by the file's id. Many processes
      # map the same library.
      @offsets = {}
      @fresh_until = 0

      module_function

      # Returns a Place; nil where the library is not loaded.
      def place(pid)
        born = Identity.born(pid) or raise Errno::ESRCH
        Mappings.files(pid).each do |file|
          offset = offset_in(file)
          return Place.new(pid, born, file, file.start + offset) if offset
        end
        nil
      end

      # Like .place, for a process that the user has named by number. Raises Refused with the next
      # step.
      def find(pid)
        check_process(pid)
        place(pid) || raise(Refused.new(:not_loaded, "process #{pid} does not have probescope loaded",
                                        how_to_load(pid)))
      end

      # Names.best, and Names.title. A title is memory of the process, which the process may keep
      # locked.
      def name(pid) = utf8(Names.best(pid) || "")
      def title(pid) = Names.title(pid)

      # The row of a process in `ps`; nil where the library is not loaded. It holds only what `ps`
      # shows, because there may be thousands of processes.
      def row(pid)
        place = place(pid) or return
        known = snapshot(place)
        enabled = known[:probes].select { |_, probe| probe[:enabled].positive? }.keys
        utf8({pid: pid, name: Names.best(pid) || "", **known.slice(:runtime, :version, :abi, :library),
              deleted: !on_disk?(place), enabled: enabled})
      end

      # The data for `status` and `doctor`: Info#snapshot, whether each probe is `listened` to now,
      # and `own` (OwnProbes).
      def status(place)
        memory(place) do |io|
          info = Info.new(io, place.address)
          known = info.snapshot
          listened = ->(semaphore) { listened(info, semaphore) }
          probes = known[:probes].transform_values do |probe|
            probe.merge(listened: listened.call(probe[:semaphore]))
          end
          utf8(known.merge(pid: place.pid, name: Names.best(place.pid) || "", path: place.file.path,
                           deleted: !on_disk?(place), probes: probes,
                           own: OwnProbes.of(place.pid, &listened)))
        end
      end

      def snapshot(place) = memory(place) { |io| Info.new(io, place.address).snapshot }

      # Returns [Info#flushes, Info#looking, Info#ticked].
      def counters(place)
        memory(place) do |io|
          info = Info.new(io, place.address)
          [info.flushes, info.looking, info.ticked]
        end
      end

      # Returns Info#tracers of each of these semaphores.
      def tracers(place, semaphores)
        memory(place) do |io|
          info = Info.new(io, place.address)
          semaphores.map { |semaphore| info.tracers(semaphore) }
        end
      end

      # False when bpftrace would not find the library by its path, because the file was deleted or
      # replaced.
      def on_disk?(place)
        !place.file.deleted? &&
          File.stat("/proc/#{place.pid}/root#{place.file.path}").ino.to_s == place.file.id.last
      rescue SystemCallError, ArgumentError
        false
      end

      # See Library.
      def library(place, ...) = Library.open(place.file, ...)

      # See CFunction.
      def function(place, name, symbol, users)
        raise Errno::ESRCH unless Identity.born(place.pid) == place.born

        CFunction.find(place.pid, name, symbol, users)
      end

      # See EntryPoint.globs.
      def entry_point(pid) = EntryPoint.globs(pid)

      # See Mappings.runner.
      def runner(pid, id) = Mappings.runner(pid, id)

      # See Otel::Resources. known: a snapshot.
      def resource(place, known)
        require_relative "../otel/resources"
        utf8(Otel::Resources.of(place.pid, known))
      end

      # Yields the memory of the process. Raises Errno::ESRCH when another process has got its
      # number.
      def memory(place)
        File.open("/proc/#{place.pid}/mem", "rb") do |io|
          raise Errno::ESRCH unless Identity.born(place.pid) == place.born

          yield io
        end
      end

      # nil where that is not known.
      def listened(info, semaphore)
        info.tracers(semaphore).positive? unless semaphore.zero?
      rescue Refused
        nil
      end

      def offset_in(file)
        now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        if now > @fresh_until
          @offsets.clear
          @fresh_until = now + FRESH
        end
        return @offsets[file.id] if @offsets.key?(file.id)

        @offsets[file.id] = offset(file)
      end

      def offset(file)
        file.open do |io|
          elf = Elf.new(io)
          symbol = elf.symbol(SYMBOL)
          symbol && (symbol + elf.bias(0))
        end
      rescue SystemCallError, EOFError
        nil
      end

      def check_process(pid)
        status = File.read("/proc/#{pid}/status")
        group = status[/^Tgid:\s+(\d+)/, 1].to_i
        raise Refused.new(:other, "#{pid} is a thread of process #{group}", "use -p #{group}") if group != pid

        if status.match?(/^State:\s+[ZX]/)
          raise Refused.new(:other, "process #{pid} has ended and waits for its parent (zombie)")
        end
      rescue Errno::ENOENT, Errno::ESRCH
        raise Refused.new(:other, "there is no process #{pid}",
                          "`probescope ps` lists the processes that can be traced")
      end

      # The next step for a process without the library. A process such as uWSGI may embed Python.
      def how_to_load(pid)
        python = Mappings.files(pid).any? { |file| file.path.rpartition("/").last.match?(/\A(lib)?python\d/) }
        python ? HOW_TO_LOAD_PYTHON : HOW_TO_LOAD
      rescue SystemCallError
        HOW_TO_LOAD
      end

      # The same data with valid UTF-8.
      def utf8(value)
        case value
        when String then value.dup.force_encoding(Encoding::UTF_8).scrub
        when Array then value.map { |one| utf8(one) }
        when Hash then value.to_h { |key, one| [utf8(key), utf8(one)] }
        else value
        end
      end
    end
  end
end
