"""Runs a command for which the kernel answers some calls with EPERM, like a seccomp profile. From
Linux 6.3 on, the command also cannot make memory executable, like under systemd's
MemoryDenyWriteExecute.

python3 without_calls.py CALLS COMMAND...; as root. CALLS: numbers with commas between, or bpf.
"""

import ctypes
import os
import platform
import struct
import sys

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, EPERM = 0x7FFF0000, 0x50001
FILTER = 1
bpf, seccomp = {"x86_64": (321, 317), "aarch64": (280, 277)}[platform.machine()]
forbidden = [bpf] if sys.argv[1] == "bpf" else [int(number) for number in sys.argv[1].split(",")]
code = [(LOAD, 0, 0, 0)]
for number in forbidden:
    code += [(EQUAL, 0, 1, number), (RETURN, 0, 0, EPERM)]
code.append((RETURN, 0, 0, ALLOW))
steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
program = ctypes.create_string_buffer(struct.pack("HP", len(code), ctypes.addressof(steps)))
call = ctypes.CDLL(None, use_errno=True).syscall
if call(*map(ctypes.c_ulong, (seccomp, FILTER, 0, ctypes.addressof(program)))):
    sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)
os.execvp(sys.argv[2], sys.argv[2:])
