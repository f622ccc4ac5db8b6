/* Verifying stress test: rings, all-to-all, wildcards, probes, cancels, truncation, synchronous
 * sends, deep windows and unexpected storms. Every byte is checked; the first wrong one is printed
 * with its coordinates and the exit status is 1.
 *
 *   stress [--max-size BYTES] [--iterations N] [--seconds S] [--continue S] [--seed N]
 *          [--until FILE] [--phases ring,alltoall,...] [--window N] [--count-errors] [--report S]
 *          [--lock-no-more 1]
 *
 * A run ends after N iterations or S seconds, whichever comes first. --continue S ignores the
 * iterations and runs for S seconds; with --until it continues until rank 0 finds this file.
 * --count-errors continues after a wrong byte and counts errors. --lock-no-more limits the
 * process's locked memory to its amount after MPI_Init (`ulimit -l`, effective without
 * CAP_IPC_LOCK).
 */
#include <mpi.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pattern.h"

enum { GUARD = 64, GUARD_BYTE = 0xa5, TAG_BASE = 100 };

static struct {
    size_t max_size;
    long iterations;
    double seconds;
    uint64_t seed;
    const char *phases;
    int window;
    int count_errors;
    double report_s;
    const char *until;
    int lock_no_more;
} opt = {64u << 20, 1, 1e9, 1, NULL, 2000, 0, 0, NULL, 0};

static int rank, ranks;
static long iteration;
static const char *phase = "";
static uint64_t bytes_ok, messages_ok, wrong_bytes, wrong_messages;
static double started_s, last_report_s, longest_s, last_step_s;
/* Sequence numbers per direction; both ends count the same messages in the same order. */
static uint64_t *seq_out, *seq_in;
/* Wildcard receives have a separate communicator: a neighbour may be a phase ahead. */
static MPI_Comm comm, comm_any;

/* Random numbers that all ranks draw alike (schedules), with a counter per phase. */
static uint64_t draw_state;
static uint64_t draw(void) { return mix64(draw_state += 0x9e3779b97f4a7c15ull); }
static uint64_t draw_below(uint64_t n) { return draw() % n; }

static void *need(size_t n)
{
    void *p = malloc(n ? n : 1);
    if (!p) {
        fprintf(stderr, "stress: rank %d: out of memory for %zu bytes\n", rank, n);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return p;
}

static void finish_wrong(void)
{
    fflush(stdout);
    if (!opt.count_errors) {
        MPI_Abort(MPI_COMM_WORLD, 1);
        exit(1);
    }
}

static void complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("stress MISMATCH rank=%d phase=%s iteration=%ld seed=%llu: ", rank, phase, iteration,
           (unsigned long long)opt.seed);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    wrong_messages++;
    finish_wrong();
}

/* Size of a message, log-uniform from 0 to `limit`, often at the edges where protocols change. */
static size_t draw_size(size_t limit)
{
    static const size_t edges[] = {0, 1, 8, 63, 64, 65, 1023, 1472, 4096, 8192, 16384, 16385,
                                   65535, 65536, 65537, 131072, 262144, 1048576};
    size_t size;
    if (draw_below(3) == 0) {
        size = edges[draw_below(sizeof edges / sizeof *edges)];
    } else {
        int bits = 0;
        while (bits < 40 && (1ull << bits) <= limit)
            bits++;
        uint64_t width = draw_below((uint64_t)bits + 1);
        size = width ? draw_below(1ull << width) : 0;
    }
    return size > limit ? limit : size;
}

typedef struct {
    unsigned char *data;
    size_t size;
    int src, dst;
    uint64_t seq;
} Message;

static Message outgoing(int dst, size_t size)
{
    Message m = {need(size), size, rank, dst, seq_out[dst]++};
    pattern_fill(m.data, size, pattern_key(rank, dst, m.seq, opt.seed));
    return m;
}

/* A buffer for the next message of `src`, followed by guard bytes. */
static Message incoming(int src, size_t size)
{
    Message m = {need(size + GUARD), size, src, rank, seq_in[src]++};
    memset(m.data, 0x11, size);
    memset(m.data + size, GUARD_BYTE, GUARD);
    return m;
}

static void verify(Message *m, MPI_Status *status, int tag)
{
    int count = -1;
    size_t first = 0;
    if (status) {
        MPI_Get_count(status, MPI_BYTE, &count);
        if ((size_t)count != m->size || status->MPI_SOURCE != m->src || status->MPI_TAG != tag)
            complain("status src=%d tag=%d count=%d, expected src=%d tag=%d count=%zu seq=%llu",
                     status->MPI_SOURCE, status->MPI_TAG, count, m->src, tag, m->size,
                     (unsigned long long)m->seq);
    }
    uint64_t key = pattern_key(m->src, m->dst, m->seq, opt.seed);
    size_t wrong = pattern_check(m->data, m->size, key, &first);
    if (wrong) {
        uint64_t want = pattern_word(key, first / 8) >> (8 * (first % 8));
        wrong_bytes += wrong;
        complain("src=%d dst=%d seq=%llu size=%zu offset=%zu expected=%02x got=%02x wrong_bytes=%zu",
                 m->src, m->dst, (unsigned long long)m->seq, m->size, first,
                 (unsigned)(want & 0xff), m->data[first], wrong);
    }
    for (int i = 0; i < GUARD; i++) {
        if (m->data[m->size + i] != GUARD_BYTE) {
            complain("src=%d dst=%d seq=%llu size=%zu: wrote past the end, at +%d", m->src, m->dst,
                     (unsigned long long)m->seq, m->size, i);
            break;
        }
    }
    bytes_ok += m->size;
    messages_ok++;
    free(m->data);
    m->data = NULL;
}

static void release(Message *m)
{
    free(m->data);
    m->data = NULL;
}

/* Marks progress; the longest gap shows how long a fault stopped this rank. */
static void step(void)
{
    double t = now_s();
    if (t - last_step_s > longest_s)
        longest_s = t - last_step_s;
    last_step_s = t;
    if (opt.report_s > 0 && rank == 0 && t - last_report_s >= opt.report_s) {
        printf("stress t=%.1f bytes=%llu messages=%llu wrong=%llu phase=%s\n", t - started_s,
               (unsigned long long)bytes_ok, (unsigned long long)messages_ok,
               (unsigned long long)wrong_messages, phase);
        fflush(stdout);
        last_report_s = t;
    }
}

static void exchange(int to, int from, size_t size, int tag)
{
    Message out = outgoing(to, size), in = incoming(from, size);
    MPI_Status status;
    MPI_Sendrecv(out.data, (int)size, MPI_BYTE, to, tag, in.data, (int)size, MPI_BYTE, from, tag,
                 comm, &status);
    release(&out);
    verify(&in, &status, tag);
    step();
}

/* Every size once around the ring, both directions. */
static void phase_ring(void)
{
    static const size_t sizes[] = {0, 1, 7, 8, 63, 64, 65, 1000, 1472, 4096, 8192, 16384, 16385, 65535,
                                   65536, 65537, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= opt.max_size; i++) {
        exchange(right, left, sizes[i], TAG_BASE + (int)i);
        exchange(left, right, sizes[i], TAG_BASE + (int)i);
    }
}

/* All pairs at once, several messages per pair, receives posted before, between or after. */
static void phase_alltoall(void)
{
    enum { DEPTH = 3 };
    int n = ranks * DEPTH, tag = TAG_BASE;
    size_t cap = opt.max_size / 8 > 4096 ? opt.max_size / 8 : opt.max_size;
    Message *out = need(sizeof *out * n), *in = need(sizeof *in * n);
    MPI_Request *reqs = need(sizeof *reqs * 2 * n);
    MPI_Status *st = need(sizeof *st * 2 * n);
    size_t *size = need(sizeof *size * ranks * ranks * DEPTH);
    for (int i = 0; i < ranks * ranks * DEPTH; i++)
        size[i] = draw_size(cap);
    int receive_first = (int)draw_below(2);
    for (int half = 0; half < 2; half++) {
        for (int k = 0; k < n; k++) {
            int peer = k % ranks, d = k / ranks;
            if (half == !receive_first) {
                in[k] = incoming(peer, size[(peer * ranks + rank) * DEPTH + d]);
                MPI_Irecv(in[k].data, (int)in[k].size, MPI_BYTE, peer, tag + d, comm, &reqs[k]);
            } else {
                out[k] = outgoing(peer, size[(rank * ranks + peer) * DEPTH + d]);
                MPI_Isend(out[k].data, (int)out[k].size, MPI_BYTE, peer, tag + d, comm,
                          &reqs[n + k]);
            }
        }
    }
    MPI_Waitall(2 * n, reqs, st);
    for (int k = 0; k < n; k++) {
        verify(&in[k], &st[k], tag + k / ranks);
        release(&out[k]);
    }
    step();
    free(out), free(in), free(reqs), free(st), free(size);
}

/* MPI's collectives, which use other code paths and packing than point-to-point messages. */
static void phase_collective(void)
{
    size_t each = 1 + draw_below(20000);
    unsigned char *out = need(each * ranks), *in = need(each * ranks);
    for (int p = 0; p < ranks; p++)
        pattern_fill(out + p * each, each, pattern_key(rank, p, iteration, ~opt.seed));
    memset(in, 0, each * ranks);
    MPI_Alltoall(out, (int)each, MPI_BYTE, in, (int)each, MPI_BYTE, comm);
    for (int p = 0; p < ranks; p++) {
        size_t first, wrong = pattern_check(in + p * each, each,
                                            pattern_key(p, rank, iteration, ~opt.seed), &first);
        if (wrong) {
            wrong_bytes += wrong;
            complain("MPI_Alltoall block src=%d size=%zu offset=%zu wrong_bytes=%zu", p, each, first,
                     wrong);
        }
        bytes_ok += each;
    }
    uint64_t mine = mix64(rank + 1), sum = 0, want = 0;
    for (int p = 0; p < ranks; p++)
        want += mix64(p + 1);
    MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, comm);
    if (sum != want)
        complain("MPI_Allreduce gave %llx, expected %llx", (unsigned long long)sum,
                 (unsigned long long)want);
    messages_ok += ranks + 1;
    free(out), free(in);
    step();
}

/* Any source, any tag: MPI guarantees the order per source, so the sequence number is known. */
static void phase_wildcard(void)
{
    enum { EACH = 40 };
    int n = EACH * ranks, got_any = 0;
    Message *out = need(sizeof *out * n);
    MPI_Request *reqs = need(sizeof *reqs * n);
    size_t *size = need(sizeof *size * ranks * ranks * EACH);
    int *tag = need(sizeof *tag * ranks * ranks * EACH);
    int *seen = calloc(ranks, sizeof *seen);
    for (int i = 0; i < ranks * ranks * EACH; i++) {
        size[i] = draw_size(opt.max_size < 100000 ? opt.max_size : 100000);
        tag[i] = TAG_BASE + (int)draw_below(5);
    }
    size_t cap = opt.max_size < 100000 ? opt.max_size : 100000;
    for (int k = 0; k < n; k++) {
        int peer = k % ranks, i = (rank * ranks + peer) * EACH + k / ranks;
        out[k] = outgoing(peer, size[i]);
        MPI_Isend(out[k].data, (int)size[i], MPI_BYTE, peer, tag[i], comm_any, &reqs[k]);
    }
    unsigned char *buf = need(cap + GUARD);
    for (; got_any < n; got_any++) {
        MPI_Status st;
        int count;
        memset(buf, GUARD_BYTE, cap + GUARD);
        MPI_Recv(buf, (int)cap, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm_any, &st);
        MPI_Get_count(&st, MPI_BYTE, &count);
        int src = st.MPI_SOURCE;
        if (src < 0 || src >= ranks || seen[src] >= EACH) {
            complain("wildcard receive from src=%d beyond what it sent", src);
            break;
        }
        int i = (src * ranks + rank) * EACH + seen[src]++;
        Message m = incoming(src, size[i]);
        memcpy(m.data, buf, (size_t)count < m.size ? (size_t)count : m.size);
        verify(&m, &st, tag[i]);
        step();
    }
    MPI_Waitall(n, reqs, MPI_STATUSES_IGNORE);
    for (int k = 0; k < n; k++)
        release(&out[k]);
    MPI_Barrier(comm_any);
    free(out), free(reqs), free(size), free(tag), free(seen), free(buf);
}

/* The receiver learns the size by MPI_Probe, MPI_Iprobe or MPI_Mprobe; an unused tag must not
 * match. */
static void phase_probe(void)
{
    enum { EACH = 12 };
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    Message out[EACH];
    MPI_Request reqs[EACH];
    size_t size[EACH];
    for (int k = 0; k < EACH; k++)
        size[k] = draw_size(opt.max_size < 300000 ? opt.max_size : 300000);
    for (int k = 0; k < EACH; k++) {
        out[k] = outgoing(right, size[k]);
        MPI_Isend(out[k].data, (int)size[k], MPI_BYTE, right, TAG_BASE + k, comm_any, &reqs[k]);
    }
    for (int k = 0; k < EACH; k++) {
        MPI_Status st;
        MPI_Message handle = MPI_MESSAGE_NULL;
        int count, flag = 0;
        MPI_Iprobe(left, TAG_BASE - 1, comm_any, &flag, &st);
        if (flag)
            complain("MPI_Iprobe found tag %d, which nobody sent", st.MPI_TAG);
        if (k % 3 == 0)
            MPI_Probe(k % 2 ? left : MPI_ANY_SOURCE, TAG_BASE + k, comm_any, &st);
        else if (k % 3 == 1)
            for (flag = 0; !flag;)
                MPI_Iprobe(left, TAG_BASE + k, comm_any, &flag, &st);
        else
            MPI_Mprobe(left, TAG_BASE + k, comm_any, &handle, &st);
        MPI_Get_count(&st, MPI_BYTE, &count);
        Message in = incoming(left, size[k]);
        if ((size_t)count != in.size) {
            complain("probe saw %d bytes, expected %zu, seq=%llu", count, in.size,
                     (unsigned long long)in.seq);
            return;
        }
        if (k % 3 == 2)
            MPI_Mrecv(in.data, count, MPI_BYTE, &handle, &st);
        else
            MPI_Recv(in.data, count, MPI_BYTE, left, TAG_BASE + k, comm_any, &st);
        verify(&in, &st, TAG_BASE + k);
        step();
    }
    MPI_Waitall(EACH, reqs, MPI_STATUSES_IGNORE);
    for (int k = 0; k < EACH; k++)
        release(&out[k]);
}

/* Cancelled receives complete as cancelled, match no message, and leave their buffer unchanged. */
static void phase_cancel(void)
{
    enum { EACH = 8 };
    unsigned char buf[EACH][256];
    MPI_Request reqs[EACH];
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    memset(buf, GUARD_BYTE, sizeof buf);
    for (int k = 0; k < EACH; k++)
        MPI_Irecv(buf[k], sizeof buf[k], MPI_BYTE, k % 2 ? left : MPI_ANY_SOURCE, TAG_BASE + 50 + k,
                  comm, &reqs[k]);
    for (int k = 0; k < EACH; k++)
        MPI_Cancel(&reqs[k]);
    for (int k = 0; k < EACH; k++) {
        MPI_Status st;
        int flag = 0;
        MPI_Wait(&reqs[k], &st);
        MPI_Test_cancelled(&st, &flag);
        if (!flag)
            complain("receive %d was cancelled, but its status does not say so", k);
        messages_ok++;
    }
    MPI_Barrier(comm);
    /* The same tags again: these messages must match the new receives. */
    for (int k = 0; k < EACH; k++)
        exchange(right, left, opt.max_size < 200 ? opt.max_size : 200, TAG_BASE + 50 + k);
    for (int k = 0; k < EACH; k++)
        for (size_t i = 0; i < sizeof buf[k]; i++)
            if (buf[k][i] != GUARD_BYTE) {
                complain("cancelled receive %d was written at offset %zu", k, i);
                return;
            }
}

/* A message longer than its receive: MPI_ERR_TRUNCATE, and no byte is written beyond the buffer. */
static void phase_truncate(void)
{
    static const size_t sizes[] = {100, 20000, 300000};
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && sizes[k] <= opt.max_size; k++) {
        Message out = outgoing(right, sizes[k]);
        seq_in[left]++;
        size_t room = sizes[k] / 2;
        unsigned char *buf = need(room + GUARD);
        MPI_Request req;
        int class = MPI_SUCCESS;
        memset(buf, GUARD_BYTE, room + GUARD);
        MPI_Isend(out.data, (int)sizes[k], MPI_BYTE, right, TAG_BASE, comm, &req);
        int err = MPI_Recv(buf, (int)room, MPI_BYTE, left, TAG_BASE, comm, MPI_STATUS_IGNORE);
        MPI_Error_class(err, &class);
        if (class != MPI_ERR_TRUNCATE)
            complain("%zu bytes into %zu: error class %d, expected MPI_ERR_TRUNCATE", sizes[k], room,
                     class);
        for (int i = 0; i < GUARD; i++)
            if (buf[room + i] != GUARD_BYTE) {
                complain("truncated receive of %zu bytes wrote past %zu", sizes[k], room);
                break;
            }
        err = MPI_Wait(&req, MPI_STATUS_IGNORE);
        messages_ok++;
        release(&out), free(buf);
        MPI_Barrier(comm);
        step();
    }
}

/* A synchronous send is incomplete until its receive is posted: the receiver posts only after the
 * sender has tested the request and sent a message. */
static void phase_ssend(void)
{
    static const size_t sizes[] = {0, 8, 5000, 200000};
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && sizes[k] <= opt.max_size; k++) {
        Message out = outgoing(right, sizes[k]), in = incoming(left, sizes[k]);
        MPI_Request req;
        MPI_Status st;
        int flag = 0;
        MPI_Issend(out.data, (int)sizes[k], MPI_BYTE, right, TAG_BASE + 60, comm, &req);
        for (int i = 0; i < 50 && !flag; i++)
            MPI_Test(&req, &flag, MPI_STATUS_IGNORE);
        if (flag)
            complain("MPI_Issend of %zu bytes completed before its receive was posted", sizes[k]);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, right, TAG_BASE + 61, NULL, 0, MPI_BYTE, left, TAG_BASE + 61,
                     comm, MPI_STATUS_IGNORE);
        MPI_Recv(in.data, (int)sizes[k], MPI_BYTE, left, TAG_BASE + 60, comm, &st);
        verify(&in, &st, TAG_BASE + 60);
        if (!flag)
            MPI_Wait(&req, MPI_STATUS_IGNORE);
        release(&out);
        step();
    }
}

/* `window` small messages in flight to the neighbour. Receives are posted first if `expected`,
 * otherwise after all sends and in reverse order (a storm of unexpected messages). */
static void flood(int count, size_t cap, int expected)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    Message *out = need(sizeof *out * count), *in = need(sizeof *in * count);
    MPI_Request *reqs = need(sizeof *reqs * 2 * count);
    MPI_Status *st = need(sizeof *st * 2 * count);
    size_t *size = need(sizeof *size * count);
    for (int k = 0; k < count; k++)
        size[k] = draw_size(cap);
    for (int k = 0; k < count; k++)
        in[k] = incoming(left, size[k]);
    for (int k = 0; expected && k < count; k++)
        MPI_Irecv(in[k].data, (int)size[k], MPI_BYTE, left, TAG_BASE + k % 16, comm, &reqs[k]);
    for (int k = 0; k < count; k++) {
        out[k] = outgoing(right, size[k]);
        int tag = TAG_BASE + (expected ? k % 16 : k);
        MPI_Isend(out[k].data, (int)size[k], MPI_BYTE, right, tag, comm, &reqs[count + k]);
    }
    if (!expected) {
        MPI_Sendrecv(NULL, 0, MPI_BYTE, right, TAG_BASE - 2, NULL, 0, MPI_BYTE, left, TAG_BASE - 2,
                     comm, MPI_STATUS_IGNORE);
        for (int k = count - 1; k >= 0; k--)
            MPI_Irecv(in[k].data, (int)size[k], MPI_BYTE, left, TAG_BASE + k, comm, &reqs[k]);
    }
    MPI_Waitall(2 * count, reqs, st);
    for (int k = 0; k < count; k++) {
        verify(&in[k], &st[k], TAG_BASE + (expected ? k % 16 : k));
        release(&out[k]);
    }
    step();
    free(out), free(in), free(reqs), free(st), free(size);
}

static void phase_window(void)
{
    flood(opt.window, opt.max_size < 2000 ? opt.max_size : 2000, 1);
}

static void phase_storm(void)
{
    flood(opt.window / 4 + 1, opt.max_size < 30000 ? opt.max_size : 30000, 0);
}

/* Both ends draw the same schedule of sizes, tags, send kinds and orders. */
static void phase_random(void)
{
    enum { EACH = 60 };
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    Message out[EACH], in[EACH];
    MPI_Request reqs[2 * EACH];
    MPI_Status st[2 * EACH];
    int tag[EACH], kind[EACH];
    size_t size[EACH];
    for (int k = 0; k < EACH; k++) {
        size[k] = draw_size(k % 20 == 7 ? opt.max_size : opt.max_size / 64);
        tag[k] = TAG_BASE + (int)draw_below(4);
        kind[k] = (int)draw_below(3);
    }
    int late = (int)draw_below(EACH);
    for (int half = 0; half < 2; half++) {
        for (int k = half ? late : 0; k < (half ? EACH : late); k++) {
            in[k] = incoming(left, size[k]);
            MPI_Irecv(in[k].data, (int)size[k], MPI_BYTE, left, tag[k], comm, &reqs[k]);
        }
        for (int k = 0; half == 0 && k < EACH; k++) {
            out[k] = outgoing(right, size[k]);
            if (kind[k] == 0)
                MPI_Issend(out[k].data, (int)size[k], MPI_BYTE, right, tag[k], comm, &reqs[EACH + k]);
            else
                MPI_Isend(out[k].data, (int)size[k], MPI_BYTE, right, tag[k], comm, &reqs[EACH + k]);
        }
    }
    MPI_Waitall(2 * EACH, reqs, st);
    for (int k = 0; k < EACH; k++) {
        verify(&in[k], &st[k], tag[k]);
        release(&out[k]);
    }
    step();
}

static const struct {
    const char *name;
    void (*run)(void);
} PHASES[] = {
    {"ring", phase_ring},         {"alltoall", phase_alltoall}, {"collective", phase_collective},
    {"wildcard", phase_wildcard}, {"probe", phase_probe},       {"cancel", phase_cancel},
    {"truncate", phase_truncate}, {"ssend", phase_ssend},       {"window", phase_window},
    {"storm", phase_storm},       {"random", phase_random},
};

static int wanted(const char *name)
{
    if (!opt.phases)
        return 1;
    size_t n = strlen(name);
    for (const char *p = opt.phases; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, name, n) && (p[n] == 0 || p[n] == ','))
            return 1;
    return 0;
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (!strcmp(name, "--count-errors")) {
            opt.count_errors = 1;
            continue;
        }
        if (i + 1 >= argc) {
            fprintf(stderr, "stress: %s needs a value\n", name);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        const char *value = argv[++i];
        if (!strcmp(name, "--max-size"))
            opt.max_size = strtoull(value, NULL, 0);
        else if (!strcmp(name, "--iterations"))
            opt.iterations = atol(value);
        else if (!strcmp(name, "--seconds"))
            opt.seconds = atof(value);
        else if (!strcmp(name, "--continue"))
            opt.seconds = atof(value), opt.iterations = 1l << 60;
        else if (!strcmp(name, "--seed"))
            opt.seed = strtoull(value, NULL, 0);
        else if (!strcmp(name, "--phases"))
            opt.phases = value;
        else if (!strcmp(name, "--window"))
            opt.window = atoi(value);
        else if (!strcmp(name, "--until"))
            opt.until = value;
        else if (!strcmp(name, "--report"))
            opt.report_s = atof(value);
        else if (!strcmp(name, "--lock-no-more"))
            opt.lock_no_more = atoi(value);
        else {
            fprintf(stderr, "stress: unknown argument %s\n", name);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
}

/* Limits locked memory to the amount locked for devices at present. */
static void lock_no_more(void)
{
    struct rlimit limit;
    unsigned long long locked_kb = 0;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status) && sscanf(line, "VmPin: %llu", &locked_kb) != 1)
        ;
    if (status)
        fclose(status);
    getrlimit(RLIMIT_MEMLOCK, &limit);
    limit.rlim_cur = locked_kb << 10;
    if (!locked_kb || setrlimit(RLIMIT_MEMLOCK, &limit)) {
        fprintf(stderr, "stress: rank %d: %llu kB are locked, no limit was set\n", rank, locked_kb);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    printf("stress rank=%d locked_kb=%llu, and no more\n", rank, locked_kb);
}

/* Rank 0 decides for all, so that no rank waits for another that has left. */
static int go_on(void)
{
    int waits = opt.until && access(opt.until, F_OK);
    int more = iteration < opt.iterations && (waits || now_s() - started_s < opt.seconds);
    MPI_Bcast(&more, 1, MPI_INT, 0, comm);
    step();
    return more;
}

static int summary(void)
{
    unsigned long long mine[4] = {bytes_ok, messages_ok, wrong_messages, wrong_bytes}, all[4];
    double longest = 0;
    MPI_Reduce(mine, all, 4, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, comm);
    MPI_Reduce(&longest_s, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, comm);
    MPI_Bcast(all, 4, MPI_UNSIGNED_LONG_LONG, 0, comm);
    if (rank == 0) {
        if (all[2])
            printf("stress WRONG messages=%llu bytes=%llu of messages=%llu bytes=%llu\n", all[2],
                   all[3], all[1], all[0]);
        else
            printf("stress ok bytes=%llu messages=%llu iterations=%ld ranks=%d seconds=%.2f "
                   "longest_ms=%.1f\n",
                   all[0], all[1], iteration, ranks, now_s() - started_s, 1e3 * longest);
        fflush(stdout);
    }
    return all[2] != 0;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    parse(argc, argv);
    if (opt.lock_no_more)
        lock_no_more();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_any);
    seq_out = calloc(ranks, sizeof *seq_out);
    seq_in = calloc(ranks, sizeof *seq_in);
    started_s = last_report_s = last_step_s = now_s();
    while (go_on()) {
        for (size_t p = 0; p < sizeof PHASES / sizeof *PHASES; p++) {
            if (!wanted(PHASES[p].name))
                continue;
            phase = PHASES[p].name;
            draw_state = mix64(opt.seed ^ mix64(iteration * 64 + p + 1));
            /* Only truncation expects an error; other errors abort with the MPI's message. */
            MPI_Comm_set_errhandler(comm, PHASES[p].run == phase_truncate ? MPI_ERRORS_RETURN
                                                                          : MPI_ERRORS_ARE_FATAL);
            PHASES[p].run();
        }
        iteration++;
    }
    int failed = summary();
    free(seq_out), free(seq_in);
    MPI_Comm_free(&comm_any);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return failed;
}
