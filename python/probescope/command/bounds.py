"""What is believed of a process that is read, at most.

Generated from providers/hosts.yml by `rake generate`. Do not edit.
"""

from __future__ import annotations

# Of one read of a process's memory.
READ_BYTES = 1 << 20
# Rows of probescope_info, of which there are 26.
INFO_PROBES = 128
# At least, of such a row.
INFO_LEAST_ROW_BYTES = 40
# Of such a row, which has 168.
INFO_ROW_BYTES = 1024
# Sections or program headers of a file; a library of ours has 41 sections.
ELF_ROWS = 256
# At least, of such a row.
ELF_LEAST_ROW_BYTES = 44
# Of such a row.
ELF_ROW_BYTES = 256
# Of one read of a file.
ELF_BYTES = 256 << 10
# Of its dynamic symbols, and of their names; ours has 6 KiB and 4 KiB.
ELF_SYMBOL_BYTES = 64 << 10
# Of all its notes; ours has 3 KiB.
ELF_NOTE_BYTES = 256 << 10
# In its notes.
ELF_PROBES = 2048
# Of the text of /proc/PID/maps; a mapping takes 50 to 150 bytes, and Linux lets a process have 65,530.
MAPS_BYTES = 12 << 20
# In that text.
MAPS_FILES = 4096
# Of an application's own probes; it has one for each provider.
OWN_LIBRARIES = 256
# Of address space that the child which reads may take more than it has at first.
READER_BYTES = 96 << 20
