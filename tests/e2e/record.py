"""Records the UDP datagrams of one packet each that come to a host, as a program on its network
would that sees them: lines of destination and bytes in hexadecimal digits.

    record.py INTERFACE ADDRESS COUNT FILE   (needs root)
"""

import socket
import sys

from noise import parse_udp

# Datagrams of more bytes are several packets.
ONE_PACKET = 1472
# A packet's header.
HEADER = 48


def main(interface, address, count, path):
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    tap.bind((interface, 0))
    seen = 0
    with open(path, "w", encoding="ascii") as out:
        while seen < count:
            found = parse_udp(tap.recv(65535))
            if not found or socket.inet_ntoa(found[1]) != address:
                continue
            _, _, port, data = found
            if HEADER <= len(data) <= ONE_PACKET:
                print(f"{address}:{port} {data.hex()}", file=out)
                seen += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
