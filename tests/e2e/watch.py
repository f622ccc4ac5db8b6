"""Counts the frames of an interface, and those of them in which a text stands, as a host on the
network could. Prints `ready`, and both counts when its input ends.

    watch.py INTERFACE TEXT   (needs root)
"""

import select
import socket
import sys

# Bytes of frames that wait for this process while it has no processor.
BACKLOG_BYTES = 64 << 20


def main(interface, text):
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    tap.setsockopt(socket.SOL_SOCKET, 33, BACKLOG_BYTES)  # SO_RCVBUFFORCE
    tap.bind((interface, 0))
    print("ready", flush=True)
    frames = found = 0
    while True:
        ready, _, _ = select.select([tap, sys.stdin], [], [])
        if tap in ready:
            frame = tap.recv(1 << 17)
            frames += 1
            found += text in frame
        elif not sys.stdin.read(1):
            break
    print(frames, found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].encode())
