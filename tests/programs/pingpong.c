/* Latency, bandwidth and message rate between two ranks, as CSV lines
 *
 *   pingpong,TEST,BYTES,VALUE,UNIT,HOP_BEFORE_NS,HOP_AFTER_NS,CLASS
 *
 *   pingpong [--flag FILE] [--samples N] [--seconds S] [--tests latency,bw64k,bw4m,rate]
 *            [--pin] [--trace S [--computes]] [--flow S] [--sweep BYTES,BYTES,...] [--cold]
 *            [--bare INTERFACE] [--bare-copied INTERFACE] [--bare-summed INTERFACE]
 *
 * latency: half a round trip of 8 B (mean over the sample); bw64k, bw4m: windows of 64 x 64 KiB and
 * 4 x 4 MiB, then a reply; rate: 64 x 8 B, then a reply. --flag names a file both ranks can map
 * (hop.h). --sweep: instead, ping-pongs of these sizes (half a round trip, as NetPIPE); --cold uses
 * another place in 64 MiB for every message, so that none is in a core's private cache. Only by
 * name in --tests: pp128k, pp1m, half round trips of rendezvous messages; bw128k, bw512k, windows
 * of 32 x 128 KiB and 16 x 512 KiB; bw16m, of 2 x 16 MiB. --trace S runs a ping-pong for S seconds
 * and prints its start (CLOCK_MONOTONIC) and the threshold in ms (0.3) above which round trips are
 * listed; the listed ones with their start; and the quantiles. With --computes a round trip is
 * replaced by the send of a message of 256 KiB whose receive is posted, one every 2 ms, while rank
 * 1 computes for 0.4 s at a time without calling MPI. --flow S streams messages of 256 KiB for S
 * seconds, and rank 1 prints the start of each span of 5 ms and the bytes received in it. --bare:
 * bare datagrams on this interface instead of MPI (bare.h), the kernel's limit; latency, bw64k and
 * bw4m, all as one stream of bytes.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "bare.h"
#include "hop.h"

enum { LOOK_AT_CLOCK = 16, TRACE_MAX = 4 << 20 };
/* Bytes of the longest message, and of the memory through which cold messages move. */
static const size_t ROOM = 64u << 20;
/* A reported round trip. */
static const double STALL_S = 0.3e-3;

static int rank, samples = 5, pin, cold, computes;
static double seconds = 0.2, trace_s, flow_s;
static const char *tests, *flag_path, *sweep_sizes, *bare_interface;
static Hop hop;
static Bare bare;

typedef struct {
    const char *name, *unit;
    size_t size;
    int window; /* 0: ping-pong */
} Test;

static const Test TESTS[] = {
    {"latency", "us", 8, 0},
    {"bw64k", "GB/s", 65536, 64},
    {"bw4m", "GB/s", 4u << 20, 4},
    {"rate", "M/s", 8, 64},
    {"pp128k", "us", 128 << 10, 0},
    {"pp1m", "us", 1 << 20, 0},
    {"bw128k", "GB/s", 128 << 10, 32},
    {"bw512k", "GB/s", 512 << 10, 16},
    {"bw16m", "GB/s", 16u << 20, 2},
};
enum { BY_DEFAULT = 4, LAST_BARE = 2 };

/* Rank 0 decides when to stop and says so in the first byte of a message, so that no control message
 * is part of a sample. */
static long ping(unsigned char *room, size_t size, double until)
{
    /* In separate cache lines, outside the prefetcher's range of the last message. */
    size_t step = cold ? (size + 4096 + 63) / 64 * 64 : 0, at = 0;
    /* A large message takes longer than reading the clock. */
    int look = size < 65536 ? LOOK_AT_CLOCK : 1;
    long n = 0;
    for (int last = 0; !last; n++) {
        unsigned char *buf = room + at;
        at = at + step + size <= ROOM ? at + step : 0;
        if (rank == 0) {
            last = n % look == 0 && now_s() >= until;
            buf[0] = (unsigned char)last;
            MPI_Send(buf, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buf, (int)size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buf, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            last = buf[0];
            MPI_Send(buf, (int)size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
    return n;
}

static long windows(unsigned char *buf, const Test *t, double until)
{
    MPI_Request reqs[64];
    unsigned char reply[4] = {0};
    long n = 0;
    for (int last = 0; !last; n++) {
        if (rank == 0) {
            last = now_s() >= until;
            buf[0] = (unsigned char)last;
            for (int i = 0; i < t->window; i++)
                MPI_Isend(buf + i * t->size, (int)t->size, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &reqs[i]);
            MPI_Waitall(t->window, reqs, MPI_STATUSES_IGNORE);
            MPI_Recv(reply, 4, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            for (int i = 0; i < t->window; i++)
                MPI_Irecv(buf + i * t->size, (int)t->size, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &reqs[i]);
            MPI_Waitall(t->window, reqs, MPI_STATUSES_IGNORE);
            last = buf[0];
            MPI_Send(reply, 4, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
        }
    }
    return n;
}

/* As `ping` and `windows`, with bare datagrams. */
static long bare_run(unsigned char *buf, const Test *t, double until)
{
    long n = 0;
    for (int last = 0; !last; n++) {
        if (rank == 0) {
            last = n % LOOK_AT_CLOCK == 0 && now_s() >= until;
            buf[0] = (unsigned char)last;
        }
        if (t->window) {
            bare_stream(&bare, buf, t->size * t->window, rank);
        } else {
            if (rank == 0)
                bare_send(&bare, buf, t->size);
            bare_recv(&bare, buf, t->size);
            if (rank == 1)
                bare_send(&bare, buf, t->size);
        }
        last = buf[0];
    }
    return n;
}

static double value(const Test *t, long n, double elapsed)
{
    if (!t->window)
        return elapsed / n / 2 * 1e6;
    double messages = (double)n * t->window;
    return (t->size == 8 ? messages * 1e-6 : messages * t->size * 1e-9) / elapsed;
}

static void sample(const Test *t, unsigned char *buf)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double before = hop_measure(&hop, rank), start = now_s();
    double until = start + seconds;
    long n = bare_interface ? bare_run(buf, t, until)
             : t->window    ? windows(buf, t, until)
                            : ping(buf, t->size, until);
    double elapsed = now_s() - start, after = hop_measure(&hop, rank);
    if (rank == 0) {
        printf("pingpong,%s,%zu,%.4f,%s,%.1f,%.1f,%s\n", t->name, t->size, value(t, n, elapsed),
               t->unit, before, after, hop_class(before, after));
        fflush(stdout);
    }
}

/* One sample of each size of --sweep. */
static void sweep(unsigned char *buf)
{
    for (const char *at = sweep_sizes; *at;) {
        char *end;
        size_t size = strtoul(at, &end, 10);
        if (end == at || size < 1 || size > ROOM) {
            fprintf(stderr, "pingpong: sizes from 1 to %zu, please: %s\n", ROOM, at);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        Test test = {cold ? "cold" : "hot", "us", size, 0};
        sample(&test, buf);
        at = *end == ',' ? end + 1 : end;
    }
}

typedef struct {
    double *took, start;
    long n, kept;
} Trips;

static void note_trip(Trips *trips, double began, double took)
{
    if (took > STALL_S)
        printf("stall,%.6f,%.3f\n", began, took * 1e3);
    if (trips->kept < TRACE_MAX)
        trips->took[trips->kept++] = took;
    trips->n++;
}

static void round_trips(unsigned char *buf, Trips *trips)
{
    double t0 = trips->start;
    for (int last = 0; !last;) {
        if (rank == 0) {
            last = t0 - trips->start >= trace_s;
            buf[0] = (unsigned char)last;
            MPI_Send(buf, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buf, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            double t1 = now_s();
            note_trip(trips, t0, t1 - t0);
            t0 = t1;
        } else {
            MPI_Recv(buf, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            last = buf[0];
            MPI_Send(buf, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
}

/* Sends to a computing rank, where only the progress thread takes part. */
static void sends_to_one_that_computes(unsigned char *buf, Trips *trips)
{
    enum { SIZE = 256 << 10, BATCH = 200, GO = 1, DATA = 2 };
    static const double PACE_S = 2e-3;
    MPI_Request posted[BATCH];
    int last = 0;
    for (;;) {
        if (rank == 0)
            last = now_s() - trips->start >= trace_s;
        MPI_Bcast(&last, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (last)
            return;
        if (rank == 0) {
            MPI_Recv(NULL, 0, MPI_BYTE, 1, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (double next = now_s(), i = 0; i < BATCH; i++, next += PACE_S) {
                while (now_s() < next)
                    ;
                double t0 = now_s();
                MPI_Send(buf, SIZE, MPI_BYTE, 1, DATA, MPI_COMM_WORLD);
                note_trip(trips, t0, now_s() - t0);
            }
        } else {
            for (int i = 0; i < BATCH; i++)
                MPI_Irecv(buf + (size_t)i * SIZE, SIZE, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &posted[i]);
            MPI_Send(NULL, 0, MPI_BYTE, 0, GO, MPI_COMM_WORLD);
            for (double until = now_s() + BATCH * PACE_S; now_s() < until;)
                ;
            MPI_Waitall(BATCH, posted, MPI_STATUSES_IGNORE);
        }
    }
}

/* Every round trip of a long run, which shows the cost of a fault. */
static void trace(unsigned char *buf)
{
    Trips trips = {malloc(sizeof *trips.took * TRACE_MAX), now_s(), 0, 0};
    if (rank == 0) {
        printf("trace-start,%.6f,%.3f\n", trips.start, STALL_S * 1e3);
        fflush(stdout);
    }
    (computes ? sends_to_one_that_computes : round_trips)(buf, &trips);
    if (rank == 0) {
        double lasted = now_s() - trips.start;
        qsort(trips.took, trips.kept, sizeof *trips.took, hop_cmp);
        printf("trace,%ld,p50_us=%.2f,p99_us=%.2f,max_ms=%.3f,mean_us=%.2f\n", trips.n,
               trips.took[trips.kept / 2] * 1e6, trips.took[trips.kept - 1 - trips.kept / 100] * 1e6,
               trips.took[trips.kept - 1] * 1e3, lasted / trips.n * 1e6);
        fflush(stdout);
    }
    free(trips.took);
}

/* A stream in one direction: the bytes received in each span of 5 ms. */
static void flow(unsigned char *buf)
{
    enum { SIZE = 256 << 10, WINDOW = 16, SPANS = 200, DATA = 1, LAST = 2 };
    double start = now_s();
    if (rank == 0) {
        MPI_Request window[WINDOW];
        for (int i = 0; i < WINDOW; i++)
            window[i] = MPI_REQUEST_NULL;
        for (int last = 0, at = 0; !last; at = (at + 1) % WINDOW) {
            MPI_Wait(&window[at], MPI_STATUS_IGNORE);
            last = now_s() - start >= flow_s;
            MPI_Isend(buf + at * SIZE, SIZE, MPI_BYTE, 1, last ? LAST : DATA, MPI_COMM_WORLD, &window[at]);
        }
        MPI_Waitall(WINDOW, window, MPI_STATUSES_IGNORE);
        return;
    }
    long spans = (long)((flow_s + 1) * SPANS), *bytes = calloc(spans, sizeof *bytes);
    MPI_Request window[WINDOW];
    for (int at = 0; at < WINDOW; at++)
        MPI_Irecv(buf + at * SIZE, SIZE, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &window[at]);
    for (int at = 0;; at = (at + 1) % WINDOW) {
        MPI_Status status;
        MPI_Wait(&window[at], &status);
        long span = (long)((now_s() - start) * SPANS);
        bytes[span < spans ? span : spans - 1] += SIZE;
        if (status.MPI_TAG == LAST)
            break;
        MPI_Irecv(buf + at * SIZE, SIZE, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &window[at]);
    }
    for (int at = 0; at < WINDOW; at++)
        if (window[at] != MPI_REQUEST_NULL) {
            MPI_Cancel(&window[at]);
            MPI_Wait(&window[at], MPI_STATUS_IGNORE);
        }
    for (long span = 0; span < spans; span++)
        printf("flow,%.6f,%ld\n", start + (double)span / SPANS, bytes[span]);
    fflush(stdout);
    free(bytes);
}

/* The kind that follows "--bare"; -1 if unknown. */
static int bare_kind(const char *name)
{
    static const char *const names[] = {"", "-copied", "-summed"};
    for (int kind = BARE_STRAIGHT; kind <= BARE_SUMMED; kind++)
        if (!strcmp(name, names[kind]))
            return kind;
    return -1;
}

static int parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int *flag = !strcmp(argv[i], "--pin")        ? &pin
                    : !strcmp(argv[i], "--cold")     ? &cold
                    : !strcmp(argv[i], "--computes") ? &computes
                                                     : NULL;
        if (flag) {
            *flag = 1;
            continue;
        }
        const char *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!v)
            return i;
        if (!strcmp(argv[i], "--flag"))
            flag_path = v;
        else if (!strcmp(argv[i], "--samples"))
            samples = atoi(v);
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atof(v);
        else if (!strcmp(argv[i], "--tests"))
            tests = v;
        else if (!strcmp(argv[i], "--sweep"))
            sweep_sizes = v;
        else if (!strcmp(argv[i], "--trace"))
            trace_s = atof(v);
        else if (!strcmp(argv[i], "--flow"))
            flow_s = atof(v);
        else if (!strncmp(argv[i], "--bare", 6) && bare_kind(argv[i] + 6) >= 0)
            bare_interface = v, bare.kind = bare_kind(argv[i] + 6);
        else
            return i;
        i++;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int ranks, bad;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if ((bad = parse(argc, argv)) || ranks != 2 || hop_open(&hop, flag_path, rank)) {
        fprintf(stderr, "pingpong: two ranks, known arguments and a writable --flag file, please%s%s\n",
                bad ? ": " : "", bad ? argv[bad] : "");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (pin) { /* only this thread: the library's own threads already run */
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(rank % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    unsigned char *buf = NULL;
    if (posix_memalign((void **)&buf, 4096, ROOM))
        MPI_Abort(MPI_COMM_WORLD, 2);
    memset(buf, 1, ROOM);
    ping(buf, 8, now_s() + 0.02); /* connections are established on first use */
    if (bare_interface)
        bare_open(&bare, bare_interface, bare.kind, rank);
    if (trace_s > 0)
        trace(buf);
    if (flow_s > 0)
        flow(buf);
    for (int s = 0; sweep_sizes && s < samples; s++)
        sweep(buf);
    for (int s = 0; trace_s + flow_s <= 0 && !sweep_sizes && s < samples; s++)
        for (size_t t = 0; t < sizeof TESTS / sizeof *TESTS; t++)
            if ((tests ? !!strstr(tests, TESTS[t].name) : t < BY_DEFAULT) &&
                !(bare_interface && t > LAST_BARE))
                sample(&TESTS[t], buf);
    free(buf);
    MPI_Finalize();
    return 0;
}
