# frozen_string_literal: true

# Generated from providers/tracing.yml by `rake generate`. Do not edit.
module Probescope
  module Tracing
    # Bounds for the data that are read from a process and from bpftrace.
    module Bounds
      # Most bytes in one read of a process's memory.
      READ_BYTES = 1 << 20
      # Most rows of probescope_info, which has one for each probe.
      INFO_PROBES = 128
      # Fewest bytes of such a row.
      INFO_LEAST_ROW_BYTES = 40
      # Most bytes of such a row, which has 168.
      INFO_ROW_BYTES = 1024
      # Most sections or program headers of a file; probescope's library has 41 sections.
      ELF_ROWS = 256
      # Fewest bytes of a section's or a program's header.
      ELF_LEAST_ROW_BYTES = 44
      # Most bytes of such a header.
      ELF_ROW_BYTES = 256
      # Most bytes in one read of a file.
      ELF_BYTES = 256 << 10
      # Most bytes of a file's dynamic symbols, and of their names; the library has 6 KiB and 4 KiB.
      ELF_SYMBOL_BYTES = 64 << 10
      # Most bytes of one symbol table, and of its names, in which a function is searched; that of
      # an unstripped libpython has 1 MiB.
      ELF_TABLE_BYTES = 16 << 20
      # Most places of a function's name among those names.
      ELF_SAME_NAMES = 4096
      # Most bytes of all notes of a file; probescope's library has 3 KiB.
      ELF_NOTE_BYTES = 256 << 10
      # Most probes in the notes of a file.
      ELF_PROBES = 2048
      # Most bytes of /proc/PID/maps, which has at most 65,530 mappings of 50 to 150 bytes.
      MAPS_BYTES = 12 << 20
      # Most files in /proc/PID/maps.
      MAPS_FILES = 4096
      # Most libraries of an application's own probes; there is one for each provider.
      OWN_LIBRARIES = 256
      # Most bytes of a command line in which the script that was started is searched.
      COMMAND_LINE_BYTES = 4 << 10
      # Most bytes of such a script, in which the package is searched that it starts.
      SCRIPT_BYTES = 16 << 10
      # Size of the pipe for bpftrace's output; every user may ask for so much.
      PIPE_BYTES = 1 << 20
      # Most bytes of an unpacked recording; one with 400,000 figures has some 40 MiB.
      RECORDING_BYTES = 256 << 20
      # Most messages and texts of a recording; one with 400,000 figures has 2 million.
      RECORDING_PARTS = 4_000_000
      # Most frames of a stack in a recording; probescope reads 256.
      RECORDING_DEPTH = 4096
      # Most address space that the reading child may add to what it has at its start.
      READER_BYTES = 96 << 20
    end
  end
end
