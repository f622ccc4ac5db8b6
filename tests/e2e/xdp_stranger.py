"""Takes what Marline needs of an interface, as another party: attaches a program that passes everything,
or with the number of a queue takes that queue's AF_XDP socket. It stays until standard input ends."""

import ctypes
import mmap
import socket
import struct
import sys

BPF, PROG_LOAD, LINK_CREATE = 321, 5, 28
XDP_PROGRAM, AT_INTERFACE, IN_DRIVER = 6, 37, 4
PASS = struct.pack("<BBhi", 0xb7, 0, 0, 2) + struct.pack("<BBhi", 0x95, 0, 0, 0)
# AF_XDP: the option of its memory, those of its rings, and the flag that asks for copies.
AF_XDP, SOL_XDP, UMEM, RX_RING, FILL_RING, COMPLETION_RING, COPY = 44, 283, 4, 2, 5, 6, 2
FRAMES, FRAME_LEN = 64, 4096


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    fd = libc.syscall(BPF, command, buffer, len(attributes))
    assert fd >= 0, f"bpf command {command}: errno {ctypes.get_errno()}"
    return fd


def attach():
    code, licence = ctypes.create_string_buffer(PASS, len(PASS)), ctypes.create_string_buffer(b"MIT")
    places = [ctypes.addressof(code), ctypes.addressof(licence)]
    program = bpf(PROG_LOAD, struct.pack("<IIQQIIQII16s", XDP_PROGRAM, 2, *places, 0, 0, 0, 0, 0, b"stranger"))
    bpf(LINK_CREATE, struct.pack("<IIII", program, interface, AT_INTERFACE, IN_DRIVER))


def take(queue):
    """Opens and binds the socket; returns it with its memory."""
    xdp, memory = socket.socket(AF_XDP, socket.SOCK_RAW), mmap.mmap(-1, FRAMES * FRAME_LEN)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    xdp.setsockopt(SOL_XDP, UMEM, struct.pack("<QQIIII", at, len(memory), FRAME_LEN, 0, 0, 0))
    for ring in (RX_RING, FILL_RING, COMPLETION_RING):
        xdp.setsockopt(SOL_XDP, ring, struct.pack("<I", FRAMES))
    name = struct.pack("<HHIII", AF_XDP, COPY, interface, queue, 0)
    if libc.bind(xdp.fileno(), name, len(name)):
        print(f"queue {queue}: errno {ctypes.get_errno()}", flush=True)
    return xdp, memory


libc, interface = ctypes.CDLL(None, use_errno=True), socket.if_nametoindex(sys.argv[1])
held = take(int(sys.argv[2])) if sys.argv[2:] else attach()
print("attached", flush=True)
sys.stdin.read()
