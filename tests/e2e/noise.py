"""Sends what nobody should: random and truncated datagrams to the ports of a running job, or
that job's own datagrams again with bytes changed.

    noise.py ADDRESS SECONDS SEED PORT...     random bytes, some with a right beginning
    noise.py --replay INTERFACE SECONDS SEED  captured datagrams, altered (needs root)
"""

import random
import socket
import struct
import sys
import time

LENGTHS = (0, 1, 2, 3, 7, 8, 15, 16, 24, 31, 32, 40, 47, 48, 63, 64, 100, 500, 1200, 1472)
PACE = 0.0005


def random_noise(address, seconds, seed, ports):
    draw = random.Random(seed)
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end, sent = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = bytearray(draw.randbytes(draw.choice(LENGTHS)))
        # A small first byte is likelier to be an existing version, which reaches more of the
        # parser.
        if data and draw.random() < 0.5:
            data[0] = draw.randrange(4)
        try:
            out.sendto(data, (address, draw.choice(ports)))
            sent += 1
        except OSError:
            pass  # an ICMP answer to an earlier one
        time.sleep(PACE)
    return sent


def parse_udp(frame):
    """(source, destination, destination port, payload) of an Ethernet frame with UDP/IPv4."""
    if len(frame) < 42 or frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_UDP:
        return None
    start = 14 + 4 * (frame[14] & 15)
    port, length = struct.unpack_from("!HH", frame, start + 2)
    return frame[26:30], frame[30:34], port, frame[start + 8:start + length]


def alter(draw, data):
    data = bytearray(data)
    kind = draw.randrange(4)
    if kind == 0:
        data = data[:draw.randrange(len(data) + 1)]
    elif kind == 1 and data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == 2 and data:
        data[draw.randrange(min(len(data), 48))] = draw.randrange(256)
    return data  # kind 3: unchanged


def replay(interface, seconds, seed):
    draw = random.Random(seed)
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    tap.bind((interface, 0))
    tap.settimeout(0.2)
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end, sent = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            found = parse_udp(tap.recv(65535))
        except socket.timeout:
            continue
        if not found or draw.random() > 0.05 or len(found[3]) > 1472:
            continue
        _, address, port, data = found
        try:
            out.sendto(alter(draw, data), (socket.inet_ntoa(address), port))
            sent += 1
        except OSError:
            pass
        time.sleep(PACE)
    return sent


def main(words):
    if words[0] == "--replay":
        sent = replay(words[1], float(words[2]), int(words[3]))
    else:
        sent = random_noise(words[0], float(words[1]), int(words[2]), [int(p) for p in words[3:]])
    print(f"sent {sent}")


if __name__ == "__main__":
    main(sys.argv[1:])
