/* Calls with results on all ranks, whose every byte is checked: MPI_Allreduce and MPI_Allgather of
 * random lengths, types and operations, and MPI_Barrier, on several communicators, mixed with
 * broadcasts, some of them in progress, messages between neighbours, and late ranks.
 *
 *   alike [--seconds S | --count N] [--until FILE] [--max-size BYTES] [--late MS]
 *         [--fresh allreduce|barrier|allgather]
 *
 * --until: continues until rank 0 finds this file, too. --fresh: N of these calls on a single
 * communicator without earlier broadcasts. */
#include <mpi.h>
#include <getopt.h>
#include <stdlib.h>
#include <unistd.h>

#include "pattern.h"

enum { COMMS = 4, TAG = 7 };
static int rank, ranks;
static MPI_Comm comms[COMMS];

static void wrong(const char *what, int n, int comm, size_t size)
{
    printf("alike MISMATCH %s rank=%d n=%d comm=%d size=%zu\n", what, rank, n, comm, size);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A pseudo-random number for call n and this rank. */
static uint64_t drawn(int n, int c, int who, size_t i)
{
    return mix64(mix64((uint64_t)n * 131 + (uint64_t)c) + (uint64_t)who * 8191 + i);
}

/* x -> a x + b modulo 2^32: not commutative. */
static void compose(void *left, void *right, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        uint32_t *l = (uint32_t *)left + 2 * i, *r = (uint32_t *)right + 2 * i;
        r[1] = l[0] * r[1] + l[1];
        r[0] = l[0] * r[0];
    }
}

static void numbers(int n, int c, size_t count, int kind, int in_place)
{
    int size, me;
    MPI_Comm_size(comms[c], &size);
    MPI_Comm_rank(comms[c], &me);
    static const char *const names[] = {"sum", "max", "xor", "min"};
    MPI_Op op[] = {MPI_SUM, MPI_MAX, MPI_BXOR, MPI_MIN};
    uint64_t *mine = malloc(count * 8 + 8), *all = calloc(count + 1, 8);
    for (size_t i = 0; i < count; i++)
        mine[i] = drawn(n, c, me, i);
    if (in_place)
        memcpy(all, mine, count * 8);
    MPI_Allreduce(in_place ? MPI_IN_PLACE : mine, all, (int)count, MPI_UINT64_T, op[kind], comms[c]);
    for (size_t i = 0; i < count; i++) {
        uint64_t right = drawn(n, c, 0, i);
        for (int who = 1; who < size; who++) {
            uint64_t next = drawn(n, c, who, i);
            right = kind == 0 ? right + next : kind == 2 ? right ^ next
                  : (kind == 1) == (next > right) ? next : right;
        }
        if (all[i] != right || (!in_place && mine[i] != drawn(n, c, me, i)))
            wrong(names[kind], n, c, count * 8);
    }
    free(mine), free(all);
}

/* A sum that depends on the order of its terms must have equal bits on all ranks. */
static void fractions(int n, int c, size_t count)
{
    int me;
    MPI_Comm_rank(comms[c], &me);
    double *mine = malloc(count * 8 + 8), *all = malloc(count * 8 + 8), *first = malloc(count * 8 + 8);
    for (size_t i = 0; i < count; i++)
        mine[i] = (double)(int64_t)drawn(n, c, me, i) * (i % 3 ? 1.0 : 1e-30);
    MPI_Allreduce(mine, all, (int)count, MPI_DOUBLE, MPI_SUM, comms[c]);
    memcpy(first, all, count * 8);
    PMPI_Bcast(first, (int)count * 8, MPI_BYTE, 0, comms[c]);
    if (memcmp(first, all, count * 8))
        wrong("bits", n, c, count * 8);
    free(mine), free(all), free(first);
}

/* A user-defined operation on a type with a gap, and MINLOC. */
static void others(int n, int c, size_t count, MPI_Op composed)
{
    int size, me;
    MPI_Comm_size(comms[c], &size);
    MPI_Comm_rank(comms[c], &me);
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_UINT32_T, &pair);
    MPI_Type_commit(&pair);
    uint32_t *mine = malloc(count * 8 + 8), *all = malloc(count * 8 + 8);
    for (size_t i = 0; i < 2 * count; i++)
        mine[i] = (uint32_t)drawn(n, c, me, i);
    MPI_Allreduce(mine, all, (int)count, pair, composed, comms[c]);
    for (size_t i = 0; i < count; i++) {
        uint32_t a = 1, b = 0;
        for (int who = 0; who < size; who++) {
            uint32_t l = (uint32_t)drawn(n, c, who, 2 * i), r = (uint32_t)drawn(n, c, who, 2 * i + 1);
            b = a * r + b, a = a * l;
        }
        if (all[2 * i] != a || all[2 * i + 1] != b)
            wrong("composed", n, c, count * 8);
    }
    struct { int value, at; } least, found;
    least.value = (int)drawn(n, c, me, 0), least.at = me;
    MPI_Allreduce(&least, &found, 1, MPI_2INT, MPI_MINLOC, comms[c]);
    for (int who = 0; who < size; who++)
        if ((int)drawn(n, c, who, 0) < found.value || (who == found.at && (int)drawn(n, c, who, 0) != found.value))
            wrong("least", n, c, 8);
    MPI_Type_free(&pair);
    free(mine), free(all);
}

/* An allgather whose send type has gaps at some ranks and receive type at others. */
static void gathered(int n, int c, size_t bytes, int in_place)
{
    int size, me;
    MPI_Comm_size(comms[c], &size);
    MPI_Comm_rank(comms[c], &me);
    size_t wide = me % 2 && bytes ? 2 : 1, first = 0, all = bytes * (size_t)size;
    unsigned char *mine = malloc(2 * bytes + 1), *to = calloc(2 * all + 1, 1), *packed = malloc(all + 1);
    MPI_Datatype type = MPI_BYTE, from_type = MPI_BYTE;
    if (wide == 2) {
        MPI_Type_create_resized(MPI_BYTE, 0, 2, &type);
        MPI_Type_commit(&type);
    }
    size_t from_wide = (me + n) % 3 == 0 && wide == 2 ? 2 : 1;
    if (from_wide == 2)
        from_type = type;
    pattern_fill(packed, bytes, pattern_key(me, c, (uint64_t)n, 5));
    for (size_t i = 0; i < bytes; i++) {
        mine[i * from_wide] = packed[i];
        if (in_place)
            to[((size_t)me * bytes + i) * wide] = packed[i];
    }
    MPI_Allgather(in_place ? MPI_IN_PLACE : mine, (int)bytes, from_type, to, (int)bytes, type, comms[c]);
    for (size_t i = 0; i < all; i++)
        packed[i] = to[i * wide];
    for (int who = 0; who < size; who++)
        if (pattern_check(packed + (size_t)who * bytes, bytes, pattern_key(who, c, (uint64_t)n, 5), &first))
            wrong("gathered", n, c, bytes);
    for (size_t i = 1; wide == 2 && i < 2 * all; i += 2)
        if (to[i])
            wrong("a gap", n, c, bytes);
    if (wide == 2)
        MPI_Type_free(&type);
    free(mine), free(to), free(packed);
}

/* No rank may leave a barrier before all have entered. Ranks share the clock. */
static void met(int n, int c, int late)
{
    double came = now_s(), last;
    if (late)
        usleep(500), came = now_s();
    MPI_Barrier(comms[c]);
    double left = now_s();
    PMPI_Allreduce(&came, &last, 1, MPI_DOUBLE, MPI_MAX, comms[c]);
    if (left < last)
        wrong("barrier", n, c, 0);
}

/* Call n on communicator c, with a broadcast before and one in progress around it. */
static void one(int n, int c, size_t max, MPI_Op composed)
{
    int size, me;
    MPI_Comm_size(comms[c], &size);
    MPI_Comm_rank(comms[c], &me);
    uint64_t draw = mix64((uint64_t)n * 977 + (uint64_t)c);
    size_t limit = (draw >> 32) % 5 ? 2600 : max, count = (draw >> 40) % (limit / 8 + 1), first = 0;
    int root = (int)(draw % (uint64_t)size), kind = (int)(draw >> 20 & 7);
    unsigned char bytes[700];
    MPI_Request request = MPI_REQUEST_NULL;
    uint64_t key = pattern_key(root, c, (uint64_t)n, 3);
    if (me == root)
        pattern_fill(bytes, sizeof bytes, key);
    if (n % 3 == 0)
        MPI_Ibcast(bytes, sizeof bytes, MPI_BYTE, root, comms[c], &request);
    else
        MPI_Bcast(bytes, sizeof bytes, MPI_BYTE, root, comms[c]);
    if (kind < 4)
        numbers(n, c, count, kind, draw >> 63 ? 1 : 0);
    else if (kind < 6)
        fractions(n, c, count);
    else
        others(n, c, count, composed);
    gathered(n, c, (draw >> 32) % 5 ? count : count / 8, draw >> 62 & 1);
    met(n, c, me == (int)(draw >> 24 & 15));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (pattern_check(bytes, sizeof bytes, key, &first))
        wrong("broadcast", n, c, sizeof bytes);
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
        wrong("ring", n, -1, sizeof in);
}

int main(int argc, char **argv)
{
    double seconds = 0;
    int count = 300, late = 0, fresh = 0, done = 0, more = 1;
    size_t max = 100000;
    const char *until = NULL;
    static struct option options[] = {{"seconds", 1, 0, 's'}, {"count", 1, 0, 'c'}, {"max-size", 1, 0, 'm'},
        {"late", 1, 0, 'l'}, {"fresh", 1, 0, 'f'}, {"until", 1, 0, 'u'}, {0, 0, 0, 0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 's') seconds = atof(optarg);
        else if (o == 'c') count = atoi(optarg);
        else if (o == 'm') max = strtoull(optarg, NULL, 0);
        else if (o == 'l') late = atoi(optarg);
        else if (o == 'u') until = optarg;
        else if (o == 'f') fresh = !strcmp(optarg, "barrier") ? 2 : !strcmp(optarg, "allgather") ? 3 : 1;
        else return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Op composed;
    MPI_Op_create(compose, 0, &composed);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, ranks - rank, &comms[2]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comms[3]);
    double start = now_s();
    while (more) {
        int n = done++;
        if (late && n % 50 == 7 && rank == n / 50 % ranks)
            usleep((useconds_t)late * 1000);
        for (int c = 0; c < COMMS && !fresh; c++)
            one(n, c, max, composed);
        if (fresh == 1)
            numbers(n, 0, 5, n % 4, 0);
        if (fresh == 2)
            met(n, 0, 0);
        if (fresh == 3)
            gathered(n, 0, 500, 0);
        if (n % 10 == 3)
            ring(n);
        /* Rank 0 decides whether all continue. */
        more = seconds > 0 ? now_s() - start < seconds : done < count;
        more |= until && access(until, F_OK);
        PMPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    for (int c = 0; c < COMMS; c++)
        MPI_Comm_free(&comms[c]);
    MPI_Op_free(&composed);
    if (rank == 0)
        printf("alike ok n=%d ranks=%d\n", done, ranks);
    return MPI_Finalize();
}
