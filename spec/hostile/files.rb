# frozen_string_literal: true

module Support
  # Files and memory with false contents, which spec/hostile/mapper.c maps.
  module Hostile
    MAPPER = File.join(ROOT, "tmp/mapper")
    HANGING = File.join(ROOT, "tmp/hanging")
    # The address at which mapper.c maps its first file.
    AT = 0x10000000
    # Offset of probescope_info in a file.
    INFO_AT = 0x1000
    PROBES = %w[stats__done function__stats].freeze

    module_function

    # Compiles a program of this folder, and returns its path.
    def program(path)
      source = File.join(__dir__, "#{File.basename(path)}.c")
      return path if File.exist?(path) && File.mtime(path) >= File.mtime(source)

      FileUtils.mkdir_p(File.dirname(path))
      out, status = Open3.capture2e("cc", "-O1", "-Wall", "-Wextra", "-o", path, source)
      raise "cannot compile #{source}: #{out}" unless status.success?

      path
    end

    # Returns the bytes of a probescope_info. probes: [[name, state, enabled, semaphore, reason],
    # ...]; the other fields as given.
    def info(probes = nil, magic: "PSCOPE1", sequence: 4, count: nil, probe_size: 160, offset: 280,
             flushes: 9, runtime: "ruby")
      probes ||= PROBES.map { |name| [name, 1, 1, AT + INFO_AT, ""] }
      head = [magic, 280 + (probes.size * 160), 1, sequence, count || probes.size, probe_size, offset,
              runtime, "3.1.2", "0.1.0", 42, 3, 1 << 25, 4096, 0, flushes, 2, 77, ""]
             .pack("a8 L<6 a16 a32 a16 l< L< Q<6 a128")
      head + probes.map { |row| row.pack("a24 L< L< Q< a120") }.join
    end

    # A shared library, as far as readers of ELF read it. symbol: the address of probescope_info in
    # it. notes: bytes of its section of notes.
    def elf(content = info, symbol: INFO_AT, notes: note("stats__done"), names: "\0probescope_info\0",
            sections: nil, rows: 64)
      sections ||= [[0, 0, 0, 0], [11, 0x400, 48, 2], [3, 0x500, names.bytesize, 0],
                    [7, 0x600, notes.bytesize, 0]]
      head = ["\x7FELF\x02\x01".b, 3, 62, 1, 0, 0x40, 0x200, 0, 64, 56, 1, rows, sections.size, 0]
             .pack("a16 S<S<L< Q<Q<Q< L< S<6")
      file = "\0".b * INFO_AT
      file[0, 64] = head
      file[0x40, 56] = [1, 5, 0, 0, 0, 0x10000, 0x10000, 0x1000].pack("L<2 Q<6")
      table = sections.first(8).map do |type, offset, bytes, link|
        [0, type, 0, 0, offset, bytes, link, 0, 1, 0].pack("L<2 Q<4 L<2 Q<2")
      end.join
      file[0x200, table.bytesize] = table
      file[0x400, 48] = ("\0" * 24) + [1, 0x11, 0, 1, symbol & ((1 << 64) - 1), 8].pack("L< C2 S< Q<2")
      file[0x500, names.bytesize] = names.b
      file[0x600, notes.bytesize] = notes
      file + content
    end

    def note(name, operands = "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8 8@%r9", provider: "probescope", semaphore: 0)
      description = [0, 0, semaphore].pack("Q<3") +
                    [provider, name, operands].map { |text| "#{text}\0" }.join.b
      padded = description.ljust((description.bytesize + 3) / 4 * 4, "\0")
      ["stapsdt\0".bytesize, description.bytesize, 3].pack("L<3") + "stapsdt\0#{padded}".b
    end
  end

  # Methods for examples.
  module HostileProcesses
    # Starts mapper.c with a file of these bytes.
    def hostile(bytes, *options, name: "file")
      mapper(*options, hostile_file(bytes, name))
    end

    def hostile_file(bytes, name = "file")
      path = File.join(hostile_folder, "#{name}-#{@hostile_files = @hostile_files.to_i + 1}")
      File.binwrite(path, bytes)
      path
    end

    def hostile_folder
      @hostile_folder ||= Dir.mktmpdir("hostile").tap { |folder| File.chmod(0o755, folder) }
    end

    def mapper(*arguments, within: 60)
      child = keep(Child.new(Hostile.program(Hostile::MAPPER), *arguments.map(&:to_s)))
      child.await_line(/\Aready$/, within: within)
      child
    end

    # Returns the PID of a process that maps a file of FUSE, see hanging.c.
    def hanging(bytes, until_offset, name)
      skip "no FUSE here" unless File.writable?("/dev/fuse")
      mount = File.join(hostile_folder, "mount")
      FileUtils.mkdir_p(mount)
      child = keep(Child.new(Hostile.program(Hostile::HANGING), hostile_file(bytes), mount, until_offset.to_s,
                             name))
      child.await_line(/\Aready (\d+)$/)[1].to_i
    end
  end
end

RSpec.configure do |config|
  config.include Support::HostileProcesses
  config.after { FileUtils.rm_rf(@hostile_folder) if @hostile_folder }
end
