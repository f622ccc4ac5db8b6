/* Performance of broadcasts from rank 0 to all, as CSV lines
 *
 *   fanout,TEST,RANKS,BYTES,VALUE,UNIT
 *
 *   fanout [--seconds S] [--tests latency,stream,packets] [--skew MS,MS] [--bare INTERFACE]
 *          BYTES ...
 *
 * All ranks share one machine and its monotonic clock, so that times of different ranks are
 * comparable. TEST is one of
 *
 *   latency    from the root's call until the last rank has the data, when all others have waited
 *              for about 1 ms: the median (us)
 *   stream     back-to-back broadcasts, until the last rank has the last one (GB/s)
 *   skewMS     the time inside MPI_Bcast if each receiver sleeps for up to MS ms before its call:
 *              the mean over all calls of all ranks (us)
 *   packets    packets sent on the root's rails (rail*) per broadcast, from the kernel's counters.
 *              The root calls write(-1, "fanout begin BYTES COUNT") and "fanout end" around them,
 *              as marks for a trace of its system calls
 *
 * --bare does the same with multicast datagrams without any protocol, of which every receiver reads
 * every byte: the kernel's limit. Nothing is retransmitted; a barrier of the MPI every few MiB
 * keeps receive buffers from overflowing, and lost bytes do not count. */
#define _GNU_SOURCE
#include <mpi.h>
#include <getopt.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bare.h"

enum { COUNTED_BYTES = 16 << 20, COUNTED_MAX = 256, ROUNDS_MAX = 20000, WARM_UP = 20, BURST = 2 << 20, GROUP_PORT = 60999, PAUSE_US = 1000 };
static int rank, ranks;
static double seconds = 0.5;
static unsigned char *memory;
static Bare bare;
static const char *interface;
static size_t lost;

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A socket that sends to the group, or receives as a member. */
static void join(void)
{
    struct sockaddr_in ours = bare_address(interface), group = {0};
    int buffer = BARE_BUFFER, cut = BARE_SEGMENT, on = 1, off = 0;
    struct ip_mreq member = {.imr_interface = ours.sin_addr};
    inet_pton(AF_INET, "239.192.7.7", &member.imr_multiaddr);
    group.sin_family = AF_INET;
    group.sin_port = htons(GROUP_PORT);
    group.sin_addr = member.imr_multiaddr;
    bare.socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bare.kind = BARE_SUMMED;
    if (setsockopt(bare.socket, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer))
        setsockopt(bare.socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    if (rank == 0) {
        if (setsockopt(bare.socket, IPPROTO_IP, IP_MULTICAST_IF, &ours.sin_addr, sizeof ours.sin_addr) ||
            setsockopt(bare.socket, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof off) ||
            setsockopt(bare.socket, SOL_UDP, BARE_CUT, &cut, sizeof cut) ||
            connect(bare.socket, (struct sockaddr *)&group, sizeof group))
            bare_fail("root's socket");
    } else if (setsockopt(bare.socket, SOL_UDP, BARE_JOIN, &on, sizeof on) ||
               bind(bare.socket, (struct sockaddr *)&group, sizeof group) ||
               setsockopt(bare.socket, IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof member)) {
        bare_fail("member's socket");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A broadcast without a protocol. A tenth of a second without a datagram counts as a loss. */
static void bare_bcast(size_t size)
{
    for (size_t at = 0; at < size && rank == 0;)
        at += bare_push(&bare, memory + at, size - at);
    static size_t ahead; /* bytes of the next broadcast: GRO merges short datagrams */
    double since = clock_s();
    size_t at = rank > 0 ? ahead : size;
    for (size_t looks = 1; at < size; looks++) {
        size_t n = bare_poll(&bare, memory + at % size, BARE_ROOM);
        bare_add(&bare, memory + at % size, n);
        at += n;
        if (n)
            since = clock_s();
        else if (looks % 16 == 0)
            sched_yield();
        if (!n && looks % 1024 == 0 && clock_s() - since > 0.1) {
            lost += size - at;
            at = size;
        }
    }
    ahead = at - size;
}

static void bcast(size_t size)
{
    if (interface)
        bare_bcast(size);
    else
        MPI_Bcast(memory, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int agree(int value)
{
    if (interface || ranks > 1)
        PMPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return value;
}

/* Rounds after which ranks agree whether to continue: few at first, as one may take seconds. */
static int asks(int rounds)
{
    return rounds % 16 == 0 || (rounds & (rounds - 1)) == 0;
}

static double latency(size_t size)
{
    static double began[ROUNDS_MAX], ended[ROUNDS_MAX], last[ROUNDS_MAX];
    int n = 0;
    double start = clock_s();
    for (int more = 1; more; n++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            usleep(PAUSE_US);
        began[n] = clock_s();
        bcast(size);
        ended[n] = clock_s();
        if (asks(n + 1))
            more = agree(clock_s() - start < seconds && n + 16 < ROUNDS_MAX);
    }
    MPI_Reduce(ended, last, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++)
        last[i] -= began[i];
    qsort(last, (size_t)n, sizeof *last, ascending);
    return last[n / 2] * 1e6;
}

static double skewed(size_t size, int ms)
{
    double inside = 0, all = 0, start = clock_s();
    int n = 0;
    unsigned seed = (unsigned)rank * 7919 + 1;
    for (int more = 1; more; n++) {
        useconds_t pause = (useconds_t)(ms ? rand_r(&seed) % (ms * 1000) : 0);
        if (rank > 0 && pause)
            usleep(pause);
        double began = clock_s();
        bcast(size);
        inside += clock_s() - began;
        if (asks(n + 1)) {
            more = agree(clock_s() - start < seconds);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    MPI_Reduce(&inside, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return all / n / ranks * 1e6;
}

static double stream(size_t size)
{
    int count = 2, each = BURST / (int)size < 1 ? 1 : BURST / (int)size;
    if (each > 256)
        each = 256;
    for (;;) {
        double mine, last, start;
        MPI_Barrier(MPI_COMM_WORLD);
        lost = 0;
        start = clock_s();
        for (int i = 0; i < count; i++) {
            bcast(size);
            if (interface && i % each == each - 1)
                MPI_Barrier(MPI_COMM_WORLD);
        }
        mine = clock_s();
        MPI_Allreduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        double took = last - start;
        if (!agree(took < seconds)) {
            size_t most = 0;
            MPI_Reduce(&lost, &most, 1, MPI_UNSIGNED_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
            return ((double)size * count - (double)most) / took / 1e9;
        }
        count = agree((int)(count * (took < seconds / 8 ? 4 : 1.3 * seconds / took)) + 1);
    }
}

/* Packets sent on this host's rails. */
static unsigned long long packets_out(void)
{
    unsigned long long sum = 0, packets;
    char line[512];
    FILE *file = fopen("/proc/self/net/dev", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, " rail%*[^:]: %*u %*u %*u %*u %*u %*u %*u %*u %*u %llu", &packets) == 1)
            sum += packets;
    if (file)
        fclose(file);
    return sum;
}

/* A mark for a trace of this process's system calls. */
static void mark(const char *what, size_t size, int count)
{
    char text[64];
    int n = snprintf(text, sizeof text, "fanout %s %zu %d", what, size, count);
    if (rank == 0 && write(-1, text, (size_t)n) >= 0)
        abort();
}

static double packets_each(size_t size)
{
    int count = size ? (int)(COUNTED_BYTES / size) : COUNTED_MAX;
    count = count > COUNTED_MAX ? COUNTED_MAX : count < 4 ? 4 : count;
    MPI_Barrier(MPI_COMM_WORLD);
    unsigned long long before = packets_out();
    mark("begin", size, count);
    for (int i = 0; i < count; i++)
        bcast(size);
    MPI_Barrier(MPI_COMM_WORLD);
    mark("end", size, count);
    return (double)(packets_out() - before) / count;
}

int main(int argc, char **argv)
{
    const char *tests = "latency,stream", *skews = "";
    static struct option options[] = {
        {"seconds", 1, 0, 's'}, {"tests", 1, 0, 't'}, {"bare", 1, 0, 'b'}, {"skew", 1, 0, 'k'},
        {0, 0, 0, 0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 's') seconds = atof(optarg);
        else if (o == 't') tests = optarg;
        else if (o == 'k') skews = optarg;
        else if (o == 'b') interface = optarg;
        else return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t most = 0;
    for (int i = optind; i < argc; i++) {
        size_t size = strtoull(argv[i], NULL, 0);
        most = size > most ? size : most;
    }
    memory = malloc(most + BARE_ROOM);
    memset(memory, rank, most + BARE_ROOM);
    if (interface)
        join();
    for (int i = optind; i < argc; i++) {
        size_t size = strtoull(argv[i], NULL, 0);
        double start = clock_s();
        for (int n = 0; n < WARM_UP && (!asks(n) || agree(clock_s() - start < seconds)); n++)
            bcast(size);
        MPI_Barrier(MPI_COMM_WORLD);
        if (strstr(tests, "latency")) {
            double us = latency(size);
            if (rank == 0)
                printf("fanout,latency,%d,%zu,%.2f,us\n", ranks, size, us);
        }
        if (strstr(tests, "stream")) {
            double gb = stream(size);
            if (rank == 0)
                printf("fanout,stream,%d,%zu,%.7f,GB/s\n", ranks, size, gb);
        }
        if (strstr(tests, "packets")) {
            double each = packets_each(size);
            if (rank == 0)
                printf("fanout,packets,%d,%zu,%.3f,packets\n", ranks, size, each);
        }
        char *next;
        for (const char *at = skews; *at; at = *next ? next + 1 : next) {
            int ms = (int)strtol(at, &next, 10);
            if (next == at)
                break;
            double us = skewed(size, ms);
            if (rank == 0)
                printf("fanout,skew%d,%d,%zu,%.2f,us\n", ms, ranks, size, us);
        }
        fflush(stdout);
    }
    free(memory);
    return MPI_Finalize();
}
