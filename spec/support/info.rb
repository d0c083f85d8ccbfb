# frozen_string_literal: true

module Support
  # Reads probescope_info of a running process. It implements the layout's description without the
  # command's reader, so each checks the other.
  class Info
    HEADER = "a8L<6Z16Z32Z16l<L<Q<6Z128Q<2"
    HEADER_NAMES = %i[magic size abi sequence probe_count probe_size probes_offset runtime runtime_version
                      library_version pid flags memory_limit memory_used rows_dropped flushes switches
                      watcher_ticks note asked_ns hooks_in_ns].freeze
    HEADER_SIZE = 296
    PROBE = "Z24L<L<Q<Z120"
    PROBE_NAMES = %i[name state enabled semaphore reason].freeze
    STATES = %i[off on degraded refused unsupported].freeze
    FLAGS = { installed: 1, watcher: 2, yjit: 4, tsc: 8, requests: 16 }.freeze

    attr_reader :pid, :address

    # Returns nil if the process does not map the library (yet).
    def self.of(pid, library = LIBRARY)
      base = File.foreach("/proc/#{pid}/maps").map { |line| line.chomp.split(" ", 6) }
                 .find { |_, _, offset, _, _, path| path == library && offset.hex.zero? }
      base && new(pid, base[0].hex + Elf.dynamic_symbol(library, "probescope_info").fetch(:address))
    end

    def initialize(pid, address)
      @pid = pid
      @address = address
      @memory = File.open("/proc/#{pid}/mem", "rb")
    end

    # Returns the header's fields, as a consistent snapshot.
    def header
      Await.await("an even sequence in probescope_info of #{pid}") do
        before = HEADER_NAMES.zip(read(@address, HEADER_SIZE).unpack(HEADER)).to_h
        after = read(@address + 16, 4).unpack1("L<")
        before if before[:sequence].even? && before[:sequence] == after
      end
    end

    # {"exception__raise" => {state: :on, enabled: 1, semaphore: address, reason: ""}, ...}
    def probes
      @layout ||= header.slice(:probes_offset, :probe_size, :probe_count)
      @layout => {probes_offset:, probe_size:, probe_count:}
      rows = read(@address + probes_offset, probe_size * probe_count)
      found = Array.new(probe_count) do |i|
        PROBE_NAMES.zip(rows.byteslice(i * probe_size, probe_size).unpack(PROBE)).to_h
      end
      found.to_h { |probe| [probe[:name], probe.merge(state: STATES.fetch(probe[:state]))] }
    end

    def state(probe) = probes.fetch(probe)[:state]
    def flags = FLAGS.select { |_, bit| header[:flags].anybits?(bit) }.keys

    # Returns the 16-bit counter that the kernel raises for each tracer, read from the process.
    def semaphore(probe) = read(probes.fetch(probe)[:semaphore], 2).unpack1("S<")

    # Describes for a failed example each probe that is not off.
    def states
      probes.map { |name, probe| "#{name}: #{probe[:state]} #{probe[:reason]}, semaphore #{semaphore(name)}" }
            .grep_v(/: off , semaphore 0/).join("\n")
    end

    private

    def read(address, size) = @memory.pread(size, address)
  end
end
