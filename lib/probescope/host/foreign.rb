# frozen_string_literal: true

require "digest"
require_relative "elf"
require_relative "info"
require_relative "library"
require_relative "mappings"
require_relative "names"
require_relative "own_probes"
require_relative "refused"

module Probescope
  module Host
    # All that is read of foreign processes and of the files that they map, in one place. It runs in
    # a child of the process with the privilege (Reader), because whatever a process maps may keep
    # its reader waiting: a file of FUSE does, opened, read or as memory.
    #
    # Each question returns plain data. What goes wrong is a Refused with a reason; whatever else
    # were raised here becomes one in Reader. .born and .owner may be asked outside of the child,
    # too: the kernel takes no lock of the process for them.
    module Foreign
      SYMBOL = "probescope_info"
      HOW_TO_LOAD = "start it with `probescope run -- COMMAND`, or add " \
                    "`gem \"probescope\", require: \"probescope/auto\"` to its Gemfile and restart it; " \
                    "where that was done, `probescope doctor` (`bundle exec` in the Gemfile's folder) " \
                    "says whether the library was built for its Ruby"
      HOW_TO_LOAD_PYTHON = "install the package for its Python (`pip install /path/to/checkout`), then " \
                           "start it with `probescope run -- COMMAND`; on Python 3.14 and later " \
                           "`venv/bin/probescope attach PID`, of the package, loads it into the running one"
      # Where a process has its probescope_info. born: its start time in ticks after boot.
      Place = Struct.new(:pid, :born, :file, :address)
      # For so many seconds what was found in a file holds: for one look at all processes.
      FRESH = 2.0

      # Address of the symbol behind the first byte of a file (or nil), by the file's id: one
      # library is mapped by many processes.
      @offsets = {}
      @fresh_until = 0

      module_function

      # A Place, nil where the library is not loaded.
      def place(pid)
        born = born(pid) or raise Errno::ESRCH
        Mappings.files(pid).each do |file|
          offset = offset_in(file)
          return Place.new(pid, born, file, file.start + offset) if offset
        end
        nil
      end

      # The same for a process that was asked for by its number.
      def find(pid)
        check_process(pid)
        place(pid) || raise(Refused.new(:not_loaded, "process #{pid} does not have probescope loaded",
                                        how_to_load(pid)))
      end

      # Names.best, and Names.title: a title is memory of the process, which it may keep locked.
      def name(pid) = utf8(Names.best(pid) || "")
      def title(pid) = Names.title(pid)

      # What `ps` shows of a process, and no more, because there may be thousands; nil where the
      # library is not loaded.
      def row(pid)
        place = place(pid) or return
        known = snapshot(place)
        enabled = known[:probes].select { |_, probe| probe[:enabled].positive? }.keys
        utf8({pid: pid, name: Names.best(pid) || "", **known.slice(:runtime, :version, :abi, :library),
              deleted: !on_disk?(place), enabled: enabled})
      end

      # What `status` and `doctor` show: Info#snapshot, whether each probe is `listened` to now, and
      # `own` (OwnProbes).
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

      # [Info#flushes, Info#looking]
      def counters(place)
        memory(place) do |io|
          info = Info.new(io, place.address)
          [info.flushes, info.looking]
        end
      end

      # Info#tracers of each of these semaphores.
      def tracers(place, semaphores)
        memory(place) do |io|
          info = Info.new(io, place.address)
          semaphores.map { |semaphore| info.tracers(semaphore) }
        end
      end

      # False when bpftrace would not find the library through its path: it was deleted or replaced.
      def on_disk?(place)
        !place.file.deleted? &&
          File.stat("/proc/#{place.pid}/root#{place.file.path}").ino.to_s == place.file.id.last
      rescue SystemCallError, ArgumentError
        false
      end

      # See Library.
      def library(place, ...) = Library.open(place.file, ...)

      # See Otel::Resources. known: a snapshot.
      def resource(place, known)
        require_relative "../otel/resources"
        utf8(Otel::Resources.of(place.pid, known))
      end

      # Start time in ticks after boot; nil when the process is gone or a zombie.
      def born(pid)
        fields = File.read("/proc/#{pid}/stat").rpartition(") ").last.split
        fields[19] unless %w[Z X].include?(fields[0])
      rescue SystemCallError
        nil
      end

      # Its real user: the folder in /proc belongs to root where a process hides its memory. nil
      # when it is gone.
      def owner(pid)
        File.read("/proc/#{pid}/status", 2048)[/^Uid:\s+(\d+)/, 1]&.to_i
      rescue SystemCallError
        nil
      end

      # Yields the memory of the process, and of no other one that has got its number.
      def memory(place)
        File.open("/proc/#{place.pid}/mem", "rb") do |io|
          raise Errno::ESRCH unless born(place.pid) == place.born

          yield io
        end
      end

      # nil where nothing says so.
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

      # The next step for a process without the library. It may have Python inside, as uWSGI has.
      def how_to_load(pid)
        python = Mappings.files(pid).any? { |file| file.path.rpartition("/").last.match?(/\A(lib)?python\d/) }
        python ? HOW_TO_LOAD_PYTHON : HOW_TO_LOAD
      rescue SystemCallError
        HOW_TO_LOAD
      end

      # The same data with valid text.
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
