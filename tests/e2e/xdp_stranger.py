"""Attaches a program of another party than Marline to an interface: it passes everything. It stays
until standard input ends."""

import ctypes
import socket
import struct
import sys

BPF, PROG_LOAD, LINK_CREATE = 321, 5, 28
XDP_PROGRAM, AT_INTERFACE, IN_DRIVER = 6, 37, 4
PASS = struct.pack("<BBhi", 0xb7, 0, 0, 2) + struct.pack("<BBhi", 0x95, 0, 0, 0)


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    fd = libc.syscall(BPF, command, buffer, len(attributes))
    assert fd >= 0, f"bpf command {command}: errno {ctypes.get_errno()}"
    return fd


libc = ctypes.CDLL(None, use_errno=True)
code, licence = ctypes.create_string_buffer(PASS, len(PASS)), ctypes.create_string_buffer(b"MIT")
program = bpf(PROG_LOAD, struct.pack(
    "<IIQQIIQII16s", XDP_PROGRAM, 2, ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0, 0, b"stranger"))
bpf(LINK_CREATE, struct.pack("<IIII", program, socket.if_nametoindex(sys.argv[1]), AT_INTERFACE, IN_DRIVER))
print("attached", flush=True)
sys.stdin.read()
