/* Broadcasts with every byte checked: random sizes, roots, datatypes and communicators, some in
 * progress on several communicators, mixed with messages between neighbours and late ranks.
 *
 *   bcast [--seconds S | --count N] [--until FILE] [--max-size BYTES] [--late MS]
 *   bcast --plain [--count N] [--max-size BYTES]    all of that size, from rank 0 to all
 *   bcast --ahead [--count N] [--max-size BYTES]    the same; the last rank enters after all others
 *                                                   have told it that they are done
 *   bcast --behind [--count N] [--max-size BYTES]   the same; the last rank enters a second later
 *   bcast --ibcast [--count N] [--max-size BYTES]   several at a time, without waiting at once
 *
 * --until: continues until rank 0 finds this file, too. --ahead and --behind print the growth of
 * each rank's memory in kB.
 */
#include <mpi.h>
#include <getopt.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pattern.h"

enum { COMMS = 4, TAG = 7 };
static int rank, ranks;
static MPI_Comm comms[COMMS];

static void wrong(int n, int comm, int root, size_t size, size_t at)
{
    printf("bcast MISMATCH rank=%d n=%d comm=%d root=%d size=%zu offset=%zu\n", rank, n, comm, root,
           size, at);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A derived datatype: one element of two pieces with a gap. */
static MPI_Datatype pieces(void)
{
    MPI_Datatype type, made;
    MPI_Type_vector(2, 3, 5, MPI_BYTE, &type);
    MPI_Type_create_resized(type, 0, 11, &made);
    MPI_Type_free(&type);
    MPI_Type_commit(&made);
    return made;
}

/* Broadcast n of communicator c. All ranks draw the same parameters. */
static void one(int n, int c, size_t max, MPI_Datatype gaps)
{
    int size, me;
    MPI_Comm_size(comms[c], &size);
    MPI_Comm_rank(comms[c], &me);
    uint64_t draw = mix64((uint64_t)n * 131 + (uint64_t)c);
    int root = (int)(draw % (uint64_t)size), shape = (int)(draw >> 20) % 8;
    size_t limit = (draw >> 32) % 5 ? 3000 : max, bytes = (draw >> 40) % (limit + 1);
    uint64_t key = pattern_key(root, c, (uint64_t)n, 0);
    size_t first = 0;
    if (shape == 0) { /* the same data, with gaps in memory at some ranks only */
        size_t count = bytes / 6 + 1;
        unsigned char *all = malloc(count * 6), *wide = malloc(count * 11);
        if (me == root)
            pattern_fill(all, count * 6, key);
        if (me % 2) {
            for (size_t i = 0; i < count; i++)
                for (int b = 0; b < 6 && me == root; b++)
                    wide[i * 11 + (size_t)(b < 3 ? b : b + 2)] = all[i * 6 + (size_t)b];
            MPI_Bcast(wide, (int)count, gaps, root, comms[c]);
            for (size_t i = 0; i < count; i++)
                for (int b = 0; b < 6; b++)
                    all[i * 6 + (size_t)b] = wide[i * 11 + (size_t)(b < 3 ? b : b + 2)];
        } else {
            MPI_Bcast(all, (int)count * 6, MPI_BYTE, root, comms[c]);
        }
        if (pattern_check(all, count * 6, key, &first))
            wrong(n, c, root, count * 6, first);
        free(all), free(wide);
        return;
    }
    unsigned char *all = malloc(bytes + 8);
    if (me == root)
        pattern_fill(all, bytes, key);
    if (shape == 1 && bytes % 8 == 0)
        MPI_Bcast(all, (int)(bytes / 8), MPI_DOUBLE, root, comms[c]);
    else
        MPI_Bcast(all, (int)bytes, MPI_BYTE, root, comms[c]);
    if (pattern_check(all, bytes, key, &first))
        wrong(n, c, root, bytes, first);
    free(all);
}

/* A message around the ring of all ranks. */
static void ring(int n)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    unsigned char out[2000], in[2000];
    size_t first = 0;
    pattern_fill(out, sizeof out, pattern_key(rank, right, (uint64_t)n, 1));
    MPI_Sendrecv(out, sizeof out, MPI_BYTE, right, TAG, in, sizeof in, MPI_BYTE, left, TAG,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (pattern_check(in, sizeof in, pattern_key(left, rank, (uint64_t)n, 1), &first))
        wrong(n, -1, left, sizeof in, first);
}

/* Broadcasts of one size from rank 0. */
static void plain(int count, size_t size)
{
    unsigned char *all = malloc(size);
    double start = MPI_Wtime();
    for (int n = 0; n < count; n++) {
        uint64_t key = pattern_key(0, 0, (uint64_t)n, 2);
        size_t first = 0;
        if (rank == 0)
            pattern_fill(all, size, key);
        MPI_Bcast(all, (int)size, MPI_BYTE, 0, MPI_COMM_WORLD);
        if (pattern_check(all, size, key, &first))
            wrong(n, 0, 0, size, first);
    }
    if (rank == 0)
        printf("bcast ok n=%d ranks=%d seconds=%.2f\n", count, ranks, MPI_Wtime() - start);
    free(all);
}

enum { SEVERAL = 8 };

/* Concurrent nonblocking broadcasts on several communicators, with messages around the ring and a
 * collective among them. They complete in four ways, in turn. */
static void several(int n, size_t max, MPI_Datatype gaps)
{
    static unsigned char *all[SEVERAL], out[700], in[700];
    static int roots[SEVERAL], at[SEVERAL];
    static size_t bytes[SEVERAL], first;
    MPI_Request requests[SEVERAL + 2];
    int count = 1 + (int)(mix64((uint64_t)n) % SEVERAL), open = count + 2, over, index;
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int b = 0; b < count; b++) {
        uint64_t draw = mix64((uint64_t)n * 97 + (uint64_t)b);
        int size, me, c = at[b] = (int)(draw % COMMS);
        MPI_Comm_size(comms[c], &size);
        MPI_Comm_rank(comms[c], &me);
        roots[b] = (int)((draw >> 8) % (uint64_t)size);
        size_t limit = (draw >> 32) % 5 ? 3000 : max;
        bytes[b] = (draw >> 40) % (limit + 1);
        uint64_t key = pattern_key(roots[b], c, (uint64_t)n, b);
        all[b] = malloc(bytes[b] * 2 + 1);
        int wide = bytes[b] && (draw >> 16) % 4 == 0 && me % 2;
        if (me == roots[b])
            pattern_fill(all[b], bytes[b], key);
        for (size_t i = bytes[b]; wide && me == roots[b] && i-- > 0;)
            all[b][2 * i] = all[b][i];
        if (wide) { /* every second byte, with a datatype that is freed at once */
            MPI_Datatype type;
            MPI_Type_vector((int)bytes[b], 1, 2, MPI_BYTE, &type);
            MPI_Type_commit(&type);
            MPI_Ibcast(all[b], 1, type, roots[b], comms[c], &requests[b]);
            MPI_Type_free(&type);
            roots[b] += 1 << 20;
        } else {
            MPI_Ibcast(all[b], (int)bytes[b], MPI_BYTE, roots[b], comms[c], &requests[b]);
        }
    }
    pattern_fill(out, sizeof out, pattern_key(rank, right, (uint64_t)n, 1));
    MPI_Irecv(in, sizeof in, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &requests[count]);
    MPI_Isend(out, sizeof out, MPI_BYTE, right, TAG, MPI_COMM_WORLD, &requests[count + 1]);
    if (n % 3 == 0) {
        if (rank % 2)
            MPI_Test(&requests[0], &over, MPI_STATUS_IGNORE);
        MPI_Barrier(comms[0]);
    } else if (n % 3 == 1) {
        one(n, 1, 2000, gaps);
    }
    switch (n % 4) {
    case 0:
        MPI_Waitall(open, requests, MPI_STATUSES_IGNORE);
        break;
    case 1:
        for (int done = 0; done < open; done++)
            MPI_Waitany(open, requests, &index, MPI_STATUS_IGNORE);
        break;
    case 2:
        for (over = 0; !over;)
            MPI_Testall(open, requests, &over, MPI_STATUSES_IGNORE);
        break;
    default:
        while (open-- > 0) {
            MPI_Status status;
            MPI_Wait(&requests[open], &status);
        }
    }
    if (pattern_check(in, sizeof in, pattern_key(left, rank, (uint64_t)n, 1), &first))
        wrong(n, -1, left, sizeof in, first);
    for (int b = 0; b < count; b++) {
        int wide = roots[b] >> 20, root = roots[b] & 0xfffff;
        for (size_t i = 0; wide && i < bytes[b]; i++)
            all[b][i] = all[b][2 * i];
        if (pattern_check(all[b], bytes[b], pattern_key(root, at[b], (uint64_t)n, b), &first))
            wrong(n, at[b], root, bytes[b], first);
        free(all[b]);
    }
}

static long grown(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* The same with a late last rank: until all others are done (`told`), or for a second. */
static void away(int count, size_t size, int told)
{
    plain(1, size);
    long before = grown();
    for (int other = 0; rank == ranks - 1 && told && other < ranks - 1; other++)
        for (int came = 0; !came; usleep(20000))
            MPI_Iprobe(other, TAG, MPI_COMM_WORLD, &came, MPI_STATUS_IGNORE);
    if (rank == ranks - 1 && !told)
        sleep(1);
    plain(count, size);
    if (rank < ranks - 1 && told)
        MPI_Send(NULL, 0, MPI_BYTE, ranks - 1, TAG, MPI_COMM_WORLD);
    for (int other = 0; rank == ranks - 1 && told && other < ranks - 1; other++)
        MPI_Recv(NULL, 0, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("bcast grew rank=%d kB=%ld\n", rank, grown() - before);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    double seconds = 0;
    int count = 500, late = 0, done = 0, more = 1, only = 0;
    size_t max = 300000;
    const char *until = NULL;
    static struct option options[] = {{"seconds", 1, 0, 's'}, {"count", 1, 0, 'c'},
        {"max-size", 1, 0, 'm'}, {"late", 1, 0, 'l'}, {"plain", 0, 0, 'p'}, {"ahead", 0, 0, 'a'},
        {"behind", 0, 0, 'b'}, {"ibcast", 0, 0, 'i'},
        {"until", 1, 0, 'u'}, {0, 0, 0, 0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 's') seconds = atof(optarg);
        else if (o == 'c') count = atoi(optarg);
        else if (o == 'm') max = strtoull(optarg, NULL, 0);
        else if (o == 'l') late = atoi(optarg);
        else if (o == 'u') until = optarg;
        else if (o == 'p' || o == 'a' || o == 'b' || o == 'i') only = o;
        else return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (only && only != 'i') {
        if (only == 'p')
            plain(count, max);
        else
            away(count, max, only == 'a');
        return MPI_Finalize();
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, ranks - rank, &comms[2]);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &comms[3]);
    MPI_Datatype gaps = pieces();
    double start = MPI_Wtime();
    while (more) {
        int n = done++;
        if (late && n % 50 == 7 && rank == n / 50 % ranks)
            usleep((useconds_t)late * 1000);
        for (int c = 0; c < COMMS && (!only || !n); c++)
            one(n, c, max, gaps);
        if (only)
            several(n, max, gaps);
        if (n % 10 == 3)
            ring(n);
        /* Rank 0 decides whether all continue. */
        more = seconds > 0 ? MPI_Wtime() - start < seconds : done < count;
        more |= until && access(until, F_OK);
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Type_free(&gaps);
    for (int c = 0; c < COMMS; c++)
        MPI_Comm_free(&comms[c]);
    if (rank == 0)
        printf("bcast ok n=%d ranks=%d seconds=%.2f\n", done, ranks, MPI_Wtime() - start);
    MPI_Finalize();
    return 0;
}
