/* Performance of pairs of ranks or threads at any size, and of collective calls, as CSV lines
 *
 *   curve,TEST,RANKS,THREADS,BYTES,VALUE,UNIT,HOP_BEFORE_NS,HOP_AFTER_NS,CLASS
 *
 *   curve [--flag FILE] [--samples N] [--seconds S] [--threads N] [--pin] TEST:BYTES ...
 *
 * Ranks of the first half have their partners in the second half, in a lab on other hosts; all
 * pairs run at once. --threads: threads per rank, each with its own communicator. TEST is one of
 *
 *   latency    half a round trip, the mean over the sample and over the pairs (us)
 *   bandwidth  windows of 64 messages, at most 16 MiB but at least 4, then a reply (GB/s, all
 *              pairs)
 *   rate       the same, in messages (M/s, all pairs)
 *   exchange   both send at once (GB/s in one direction, all pairs)
 *   allreduce, bcast   one call on all ranks, the mean over ranks (us); only with one thread
 *   posted, unexpected  BYTES is a number of messages of 4 bytes with distinct tags, sent in order
 *              and received in reverse order: with all receives posted first, or after all messages
 *              have arrived (us per message, mean over the pairs); only with one thread
 *
 * --flag names a file that both ranks of a pair can map (hop.h). --pin pins each of two ranks to a
 * core of its own. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "hop.h"

enum { WINDOW = 64, WINDOW_MIN = 4, MAX_THREADS = 16, LOOK_AT_CLOCK = 16, WARM_UP = 20 };
static const size_t WINDOW_BYTES = 16u << 20, SIZE_MAX_BYTES = 64u << 20;

static int rank, ranks, partner, first, samples = 1, threads = 1, pin;
static double seconds = 0.1;
static const char *flag_path;
static Hop hop;

typedef struct {
    MPI_Comm comm;
    unsigned char *out, *in;
    pthread_t id;
    double value; /* of the last sample */
} Thread;
static Thread thread[MAX_THREADS];
static pthread_barrier_t together;

typedef struct Test Test;
struct Test {
    const char *name, *unit;
    /* One sample of one pair; only the first half's values count, but for collective calls. */
    double (*run)(const Test *t, Thread *me, size_t size);
    int each; /* 0: prints the sum, else the mean over pairs (1, 3) or ranks (2); 2, 3: one thread */
};

/* The first rank of a pair decides when to stop and sends that in the first byte of a message, so
 * that no control message is part of a sample. */
static double latency(const Test *t, Thread *me, size_t size)
{
    (void)t;
    int look = size < 65536 ? LOOK_AT_CLOCK : 1;
    double start = now_s();
    long n = 0;
    for (int last = 0; !last; n++) {
        if (first) {
            last = n % look == 0 && now_s() - start >= seconds;
            me->out[0] = (unsigned char)last;
            MPI_Send(me->out, (int)size, MPI_BYTE, partner, 1, me->comm);
        }
        MPI_Recv(me->in, (int)size, MPI_BYTE, partner, 1, me->comm, MPI_STATUS_IGNORE);
        if (!first) {
            last = me->in[0];
            MPI_Send(me->out, (int)size, MPI_BYTE, partner, 1, me->comm);
        }
    }
    return (now_s() - start) / (double)n / 2 * 1e6;
}

static int window_of(size_t size)
{
    size_t fit = WINDOW_BYTES / size;
    return fit < WINDOW_MIN ? WINDOW_MIN : fit < WINDOW ? (int)fit : WINDOW;
}

/* Messages per second of windows. */
static double windows(Thread *me, size_t size)
{
    MPI_Request reqs[WINDOW];
    unsigned char reply[4] = {0};
    int window = window_of(size);
    double start = now_s();
    long n = 0;
    for (int last = 0; !last; n++) {
        if (first) {
            last = now_s() - start >= seconds;
            me->out[0] = (unsigned char)last;
            for (int i = 0; i < window; i++)
                MPI_Isend(me->out + i * size, (int)size, MPI_BYTE, partner, 2, me->comm, &reqs[i]);
            MPI_Waitall(window, reqs, MPI_STATUSES_IGNORE);
            MPI_Recv(reply, 4, MPI_BYTE, partner, 3, me->comm, MPI_STATUS_IGNORE);
        } else {
            for (int i = 0; i < window; i++)
                MPI_Irecv(me->in + i * size, (int)size, MPI_BYTE, partner, 2, me->comm, &reqs[i]);
            MPI_Waitall(window, reqs, MPI_STATUSES_IGNORE);
            last = me->in[0];
            MPI_Send(reply, 4, MPI_BYTE, partner, 3, me->comm);
        }
    }
    return (double)n * window / (now_s() - start);
}

static double bandwidth(const Test *t, Thread *me, size_t size)
{
    (void)t;
    return windows(me, size) * (double)size * 1e-9;
}

static double rate(const Test *t, Thread *me, size_t size)
{
    (void)t;
    return windows(me, size) * 1e-6;
}

static double exchange(const Test *t, Thread *me, size_t size)
{
    (void)t;
    double start = now_s();
    long n = 0;
    for (int last = 0; !last; n++) {
        me->out[0] = (unsigned char)(first && now_s() - start >= seconds);
        MPI_Sendrecv(me->out, (int)size, MPI_BYTE, partner, 1, me->in, (int)size, MPI_BYTE, partner,
                     1, me->comm, MPI_STATUS_IGNORE);
        last = first ? me->out[0] : me->in[0];
    }
    return (double)n * (double)size * 1e-9 / (now_s() - start);
}

/* Rank 0 receives `count` messages in reverse order of tags. Its partner's last message, with
 * another tag on the same communicator, shows that all have arrived. */
static double matching(const Test *t, Thread *me, size_t count)
{
    int posted = t->name[0] == 'p', n = (int)count, end = n, word = 0;
    MPI_Request *reqs = malloc(count * sizeof *reqs);
    int *got = malloc(count * sizeof *got);
    if (!reqs || !got)
        MPI_Abort(MPI_COMM_WORLD, 2);
    double took = 0;
    for (int warm = 1; warm >= 0; warm--) {
        for (int i = 0; first && posted && i < n; i++)
            MPI_Irecv(&got[i], 1, MPI_INT, partner, n - 1 - i, me->comm, &reqs[i]);
        MPI_Sendrecv(&end, 1, MPI_INT, partner, n, &word, 1, MPI_INT, partner, n, me->comm,
                     MPI_STATUS_IGNORE);
        for (int i = 0; !first && i < n; i++)
            MPI_Send(&i, 1, MPI_INT, partner, i, me->comm);
        if (!first)
            MPI_Send(&end, 1, MPI_INT, partner, n + 1, me->comm);
        if (first && !posted)
            MPI_Recv(&word, 1, MPI_INT, partner, n + 1, me->comm, MPI_STATUS_IGNORE);
        double start = now_s();
        if (first && posted)
            MPI_Waitall(n, reqs, MPI_STATUSES_IGNORE);
        for (int i = n - 1; first && !posted && i >= 0; i--)
            MPI_Recv(&got[i], 1, MPI_INT, partner, i, me->comm, MPI_STATUS_IGNORE);
        took = now_s() - start;
        if (first && posted)
            MPI_Recv(&word, 1, MPI_INT, partner, n + 1, me->comm, MPI_STATUS_IGNORE);
        for (int i = 0; first && i < n; i++)
            if (got[i] != (posted ? n - 1 - i : i))
                MPI_Abort(MPI_COMM_WORLD, 3);
    }
    free(reqs), free(got);
    return took / (double)n * 1e6;
}

static void call(const Test *t, Thread *me, size_t size)
{
    if (t->name[0] == 'b')
        MPI_Bcast(me->out, (int)size, MPI_BYTE, 0, me->comm);
    else
        MPI_Allreduce(me->out, me->in, (int)size, MPI_BYTE, MPI_BOR, me->comm);
}

/* Calls with a barrier after each, so that a broadcast's root does not run ahead; returns the time
 * of the calls alone. A few calls determine their number. */
static double collective(const Test *t, Thread *me, size_t size)
{
    double start = now_s(), in_calls = 0;
    for (int i = 0; i < WARM_UP; i++) {
        call(t, me, size);
        MPI_Barrier(me->comm);
    }
    long n = (long)(seconds / ((now_s() - start) / WARM_UP)) + 1;
    MPI_Bcast(&n, 1, MPI_LONG, 0, me->comm);
    for (long i = 0; i < n; i++) {
        start = now_s();
        call(t, me, size);
        in_calls += now_s() - start;
        MPI_Barrier(me->comm);
    }
    return in_calls / (double)n * 1e6;
}

static const Test TESTS[] = {
    {"latency", "us", latency, 1},      {"bandwidth", "GB/s", bandwidth, 0},
    {"rate", "M/s", rate, 0},           {"exchange", "GB/s", exchange, 0},
    {"allreduce", "us", collective, 2}, {"bcast", "us", collective, 2},
    {"posted", "us", matching, 3},      {"unexpected", "us", matching, 3},
};

static const Test *now_test; /* the threads' next test; NULL: they end */
static size_t now_size;

static void *helper(void *arg)
{
    Thread *me = arg;
    for (;;) {
        pthread_barrier_wait(&together);
        if (!now_test)
            return NULL;
        me->value = now_test->run(now_test, me, now_size);
        pthread_barrier_wait(&together);
    }
}

/* Combines the pairs' values on rank 0. */
static double all_pairs(const Test *t, size_t size)
{
    double sum = 0, all = 0;
    now_test = t, now_size = size;
    pthread_barrier_wait(&together);
    thread[0].value = t->run(t, &thread[0], size);
    pthread_barrier_wait(&together);
    for (int i = 0; i < threads; i++)
        sum += thread[i].value;
    if (!first && t->each != 2)
        sum = 0;
    MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return t->each == 2 ? all / ranks : t->each ? all / (ranks / 2 * threads) : all;
}

static void sample(const Test *t, size_t size)
{
    int hops = ranks == 2 && threads == 1;
    MPI_Barrier(MPI_COMM_WORLD);
    double before = hops ? hop_measure(&hop, rank) : -1;
    double value = all_pairs(t, size);
    double after = hops ? hop_measure(&hop, rank) : -1;
    if (rank == 0) {
        printf("curve,%s,%d,%d,%zu,%.6g,%s,%.1f,%.1f,%s\n", t->name, ranks, threads, size, value,
               t->unit, before, after, hop_class(before, after));
        fflush(stdout);
    }
}

/* Parses TEST:BYTES; NULL for an unknown test. */
static const Test *parse_test(const char *word, size_t *size)
{
    const char *colon = strchr(word, ':');
    char *end = NULL;
    if (!colon)
        return NULL;
    *size = strtoul(colon + 1, &end, 10);
    if (end == colon + 1 || *end || *size < 1 || *size > SIZE_MAX_BYTES)
        return NULL;
    for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++) {
        size_t length = strlen(TESTS[i].name);
        if ((size_t)(colon - word) == length && !strncmp(word, TESTS[i].name, length))
            return threads > 1 && TESTS[i].each >= 2 ? NULL : &TESTS[i];
    }
    return NULL;
}

/* Parses options; returns the index of the first test, or -1 on an error. */
static int parse(int argc, char **argv)
{
    int i = 1;
    for (; i < argc && !strncmp(argv[i], "--", 2); i++) {
        if (!strcmp(argv[i], "--pin")) {
            pin = 1;
            continue;
        }
        const char *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!v)
            return -1;
        if (!strcmp(argv[i], "--flag"))
            flag_path = v;
        else if (!strcmp(argv[i], "--samples"))
            samples = atoi(v);
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atof(v);
        else if (!strcmp(argv[i], "--threads"))
            threads = atoi(v);
        else
            return -1;
        i++;
    }
    return threads < 1 || threads > MAX_THREADS ? -1 : i;
}

static void open_threads(size_t largest)
{
    size_t room = largest;
    for (int shift = 0; 1u << shift <= largest; shift++) /* the largest of all windows */
        if ((size_t)window_of(1u << shift) << shift > room)
            room = (size_t)window_of(1u << shift) << shift;
    if (room < window_of(largest) * largest)
        room = window_of(largest) * largest;
    pthread_barrier_init(&together, NULL, threads);
    for (int i = 0; i < threads; i++) {
        Thread *t = &thread[i];
        MPI_Comm_dup(MPI_COMM_WORLD, &t->comm);
        if (posix_memalign((void **)&t->out, 4096, room) || posix_memalign((void **)&t->in, 4096, room))
            MPI_Abort(MPI_COMM_WORLD, 2);
        memset(t->out, 1, room), memset(t->in, 1, room);
    }
    for (int i = 1; i < threads; i++)
        if (pthread_create(&thread[i].id, NULL, helper, &thread[i]))
            MPI_Abort(MPI_COMM_WORLD, 2);
}

static void close_threads(void)
{
    now_test = NULL;
    if (threads > 1)
        pthread_barrier_wait(&together);
    for (int i = 0; i < threads; i++) {
        if (i)
            pthread_join(thread[i].id, NULL);
        MPI_Comm_free(&thread[i].comm);
        free(thread[i].out), free(thread[i].in);
    }
}

/* Pins only this thread: the library's own threads already run. */
static void pin_rank(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

int main(int argc, char **argv)
{
    int provided, at = parse(argc, argv);
    int wanted = threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    first = rank < ranks / 2;
    partner = first ? rank + ranks / 2 : rank - ranks / 2;
    size_t size, largest = 1;
    int bad = at < 0 || ranks % 2 || provided < wanted;
    for (int i = at; !bad && i < argc; i++)
        if (!parse_test(argv[i], &size))
            bad = 1;
        else
            largest = size > largest ? size : largest;
    if (bad || hop_open(&hop, ranks == 2 ? flag_path : NULL, rank)) {
        fprintf(stderr, "curve: an even number of ranks, threads that MPI provides, known tests and "
                        "a writable --flag file, please\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (pin && ranks == 2 && threads == 1)
        pin_rank();
    open_threads(largest);
    double wished = seconds;
    seconds = 0.02;
    all_pairs(&TESTS[0], 8); /* connections are established on first use */
    seconds = wished;
    for (int s = 0; s < samples; s++)
        for (int i = at; i < argc; i++) {
            const Test *t = parse_test(argv[i], &size);
            sample(t, size);
        }
    close_threads();
    MPI_Finalize();
    return 0;
}
