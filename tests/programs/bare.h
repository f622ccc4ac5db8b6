/* The limit of the kernel's UDP without any protocol: the windows and round trips of the MPI tests,
 * with bare datagrams that GSO cuts and GRO merges. Bytes go from user memory to user memory. With
 * BARE_COPIED they are copied through packets with room for a header, as a protocol over datagrams
 * may need; with BARE_SUMMED they are only read once more at both ends while in the cache, the cost
 * of the fastest checksum. Nothing is retransmitted: a loss ends the job. */
#ifndef MARLINE_BARE_H
#define MARLINE_BARE_H

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "pattern.h"

#ifndef SOL_UDP
#define SOL_UDP 17
#endif
/* From linux/udp.h; glibc's netinet/udp.h of Debian 12 lacks it. */
enum { BARE_CUT = 103, BARE_JOIN = 104 };
/* UDP payload with an MTU of 1500, header of a continuation packet, and datagrams per super-packet:
 * the same as Marline's. */
enum { BARE_SEGMENT = 1472, BARE_HEAD = 56, BARE_SEGMENTS = 43, BARE_ROOM = 65536 };
/* Bytes in flight, and bytes after which the receiver acknowledges. */
enum { BARE_WINDOW = 1 << 20, BARE_ACK = 256 << 10, BARE_BUFFER = 8 << 20 };

typedef enum { BARE_STRAIGHT, BARE_COPIED, BARE_SUMMED } BareKind;

typedef struct {
    int socket;
    BareKind kind;
    unsigned char *stage;
    uint64_t sum; /* unused, but keeps the compiler from removing the sum */
} Bare;

static inline void bare_fail(const char *what)
{
    fprintf(stderr, "bare UDP: %s: %s\n", what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* The IPv4 address of an interface. */
static inline struct sockaddr_in bare_address(const char *interface)
{
    struct sockaddr_in found = {0};
    struct ifaddrs *all, *at;
    if (getifaddrs(&all))
        bare_fail("getifaddrs");
    for (at = all; at; at = at->ifa_next)
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && !strcmp(at->ifa_name, interface))
            found = *(struct sockaddr_in *)at->ifa_addr;
    freeifaddrs(all);
    if (found.sin_family != AF_INET) {
        errno = EADDRNOTAVAIL;
        bare_fail(interface);
    }
    return found;
}

static inline void bare_open(Bare *bare, const char *interface, BareKind kind, int rank)
{
    struct sockaddr_in ours = bare_address(interface), theirs;
    socklen_t len = sizeof ours;
    int buffer = BARE_BUFFER, cut = BARE_SEGMENT, on = 1;
    bare->kind = kind;
    bare->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bare->stage = malloc(BARE_ROOM);
    /* Only root, as in the lab, may exceed rmem_max. */
    if (setsockopt(bare->socket, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer))
        setsockopt(bare->socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    if (setsockopt(bare->socket, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer))
        setsockopt(bare->socket, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    ours.sin_port = 0;
    if (!bare->stage || bind(bare->socket, (struct sockaddr *)&ours, sizeof ours) ||
        getsockname(bare->socket, (struct sockaddr *)&ours, &len) ||
        setsockopt(bare->socket, SOL_UDP, BARE_CUT, &cut, sizeof cut) ||
        setsockopt(bare->socket, SOL_UDP, BARE_JOIN, &on, sizeof on))
        bare_fail("socket");
    MPI_Sendrecv(&ours, sizeof ours, MPI_BYTE, !rank, 9, &theirs, sizeof theirs, MPI_BYTE, !rank, 9,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (connect(bare->socket, (struct sockaddr *)&theirs, sizeof theirs))
        bare_fail("connect");
    memset(bare->stage, 0, BARE_ROOM);
}

static inline void bare_send(Bare *bare, const void *bytes, size_t len)
{
    while (send(bare->socket, bytes, len, MSG_DONTWAIT) != (ssize_t)len)
        if (errno != EAGAIN && errno != ENOBUFS)
            bare_fail("send");
}

/* Receives without waiting: bytes, or 0. */
static inline size_t bare_poll(Bare *bare, void *to, size_t room)
{
    ssize_t n = recv(bare->socket, to, room, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN)
        bare_fail("recv");
    return n < 0 ? 0 : (size_t)n;
}

/* Waits for the next datagrams; a second without any counts as a loss. */
static inline size_t bare_recv(Bare *bare, void *to, size_t room)
{
    double since = now_s();
    for (unsigned long look = 1;; look++) {
        size_t n = bare_poll(bare, to, room);
        if (n)
            return n;
        if (look % 65536 == 0 && now_s() - since > 1) {
            errno = ETIMEDOUT;
            bare_fail("datagrams were lost");
        }
    }
}

/* Adds `len` bytes to the sum with the widest registers. */
__attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default"))) static void
bare_add(Bare *bare, const unsigned char *bytes, size_t len)
{
    uint64_t sum = 0, word;
    for (size_t at = 0; at + sizeof word <= len; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        sum += word;
    }
    bare->sum += sum;
}

/* Sends a super-packet of at most `left` bytes at `from`; returns its payload in bytes. */
static inline size_t bare_push(Bare *bare, const unsigned char *from, size_t left)
{
    size_t each = BARE_SEGMENT - (bare->kind == BARE_COPIED ? BARE_HEAD : 0), at = 0;
    size_t len = left < each * BARE_SEGMENTS ? left : each * BARE_SEGMENTS, out = 0;
    if (bare->kind != BARE_COPIED) {
        bare_send(bare, from, len);
        if (bare->kind == BARE_SUMMED) /* after the send, when the bytes are in the cache */
            bare_add(bare, from, len);
        return len;
    }
    for (; at < len; at += each, out += BARE_HEAD + each)
        memcpy(bare->stage + out + BARE_HEAD, from + at, len - at < each ? len - at : each);
    bare_send(bare, bare->stage, len + (len + each - 1) / each * BARE_HEAD);
    return len;
}

/* Receives a super-packet into `to`; returns its payload in bytes. */
static inline size_t bare_pull(Bare *bare, unsigned char *to)
{
    int copied = bare->kind == BARE_COPIED;
    size_t len = bare_recv(bare, copied ? bare->stage : to, BARE_ROOM), at = 0;
    if (bare->kind == BARE_SUMMED)
        bare_add(bare, to, len);
    if (!copied)
        return len;
    for (size_t in = 0; in + BARE_HEAD < len; in += BARE_SEGMENT) {
        size_t n = (len - in < BARE_SEGMENT ? len - in : BARE_SEGMENT) - BARE_HEAD;
        memcpy(to + at, bare->stage + in + BARE_HEAD, n);
        at += n;
    }
    return at;
}

/* Transfers `total` bytes one way, with an acknowledgement per BARE_ACK bytes. */
static inline void bare_stream(Bare *bare, unsigned char *buf, size_t total, int rank)
{
    size_t at = 0, told = 0, heard[8];
    while (at < total) {
        if (rank == 1) {
            at += bare_pull(bare, buf + at);
            if (at - told >= BARE_ACK || at == total)
                bare_send(bare, &at, sizeof at), told = at;
            continue;
        }
        at += bare_push(bare, buf + at, total - at);
        size_t wanted = at == total ? total : at > BARE_WINDOW ? at - BARE_WINDOW : 0;
        do {
            size_t n = told < wanted ? bare_recv(bare, heard, sizeof heard)
                                     : bare_poll(bare, heard, sizeof heard);
            if (!n)
                break;
            told = heard[n / sizeof *heard - 1]; /* GRO may have merged several */
        } while (told < wanted);
    }
}

#endif
