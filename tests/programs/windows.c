/* Windows of every kind, verified: accumulates of sizes around all thresholds, with and without
 * requests; compare-and-swap locks around reads and writes with requests; memory attached and
 * detached during others' accesses; memory shared among ranks of a host; scattered elements on both
 * sides; empty operations.
 *
 *   windows [--rounds N] [--seed N] [--only PART]
 *
 * Parts are accumulates, locks, dynamic, shared, scattered, nothing. Prints "windows ok
 * operations=N" at rank 0. */
#include "pattern.h"
#include <mpi.h>
#include <stdlib.h>

static int rank, size, rounds = 20;
static uint64_t seed = 1, alone, together;
static long operations;

/* Sizes in bytes around thresholds: words, the longest RPC, the inject size, packets, rendezvous.
 */
static const int edges[] = { 8, 64, 448, 1024, 1472, 4064, 4072, 4080, 4096, 8192, 8200, 16384, 16392,
                             65536, 65544, 131072, 262144 };
enum { EDGES = sizeof edges / sizeof *edges, LONGEST = 262144 + 8 };

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state += 0x9e3779b97f4a7c15ull;
    return mix64(*state) % below;
}

static void expect(const char *what, int64_t got, int64_t want)
{
    if (got == want)
        return;
    fprintf(stderr, "rank %d: %s: %lld, not %lld\n", rank, what, (long long)got, (long long)want);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_Win allocate(size_t bytes, int unit, void *memory)
{
    MPI_Win win;
    MPI_Win_allocate(bytes, unit, MPI_INFO_NULL, MPI_COMM_WORLD, memory, &win);
    memset(*(void **)memory, 0, bytes);
    MPI_Win_lock_all(0, win);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    return win;
}

static void release(MPI_Win *win)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(*win);
    MPI_Win_free(win);
}

/* All ranks add to the same elements of one rank, by one of four calls each; a fetched value is a
 * sum of some of the contributions. */
static void accumulates(void)
{
    const int most = LONGEST / 8;
    int64_t *sums, *ours = malloc(LONGEST), *old = malloc(LONGEST);
    MPI_Win win = allocate(LONGEST, 8, &sums);
    for (int i = 0; i < rounds + EDGES; i++) {
        int edge = i < EDGES ? edges[i] / 8 : edges[draw(&together, EDGES)] / 8;
        int count = edge + draw(&together, 3) - (edge > 1), target = i % size;
        int at = draw(&together, most - count + 1), call = draw(&alone, 4);
        MPI_Request request = MPI_REQUEST_NULL;
        for (int k = 0; k < count; k++)
            ours[k] = (rank + 1) * (int64_t)(k + 1), old[k] = -1;
        if (call == 0)
            MPI_Accumulate(ours, count, MPI_INT64_T, target, at, count, MPI_INT64_T, MPI_SUM, win);
        else if (call == 1)
            MPI_Raccumulate(ours, count, MPI_INT64_T, target, at, count, MPI_INT64_T, MPI_SUM, win,
                            &request);
        else if (call == 2)
            MPI_Get_accumulate(ours, count, MPI_INT64_T, old, count, MPI_INT64_T, target, at, count,
                               MPI_INT64_T, MPI_SUM, win);
        else
            MPI_Rget_accumulate(ours, count, MPI_INT64_T, old, count, MPI_INT64_T, target, at, count,
                                MPI_INT64_T, MPI_SUM, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Win_flush(target, win);
        for (int k = 0; k < count && call > 1; k++) {
            int64_t all = size * (size + 1) / 2 - (rank + 1);
            if (old[k] < 0 || old[k] % (k + 1) || old[k] > all * (k + 1))
                expect("what an accumulate found", old[k], 0);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(win);
        for (int k = 0; k < count && rank == target; k++) {
            expect("a sum", sums[at + k], size * (size + 1) / 2 * (int64_t)(k + 1));
            sums[at + k] = 0;
        }
        MPI_Win_sync(win);
        MPI_Barrier(MPI_COMM_WORLD);
        operations++;
    }
    for (int k = 0; k < most; k++)
        expect("what nobody added to", sums[k], 0);
    release(&win);
    free(ours);
    free(old);
}

/* A compare-and-swap lock protects a record that is read and written with requests. */
static void locks(void)
{
    enum { RECORD = 700, TURNS = 6 };
    int64_t *words, record[RECORD];
    MPI_Win win = allocate((1 + RECORD) * sizeof *words, sizeof *words, &words);
    for (int i = 0; i < TURNS; i++) {
        int64_t free_ = 0, mine = rank + 1, found;
        MPI_Request request;
        do {
            MPI_Compare_and_swap(&mine, &free_, &found, MPI_INT64_T, 0, 0, win);
            MPI_Win_flush(0, win);
            operations++;
        } while (found != 0);
        MPI_Rget(record, RECORD, MPI_INT64_T, 0, 1, RECORD, MPI_INT64_T, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int k = 0; k < RECORD; k++) {
            expect("a word behind a lock", record[k], record[0]);
            record[k] += k ? 1 : 0;
        }
        record[0]++;
        MPI_Rput(record, RECORD, MPI_INT64_T, 0, 1, RECORD, MPI_INT64_T, win, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Win_flush(0, win);
        MPI_Compare_and_swap(&free_, &mine, &found, MPI_INT64_T, 0, 0, win);
        MPI_Win_flush(0, win);
        expect("who held the lock", found, mine);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(win);
    for (int k = 1; k <= RECORD && rank == 0; k++)
        expect("a word behind locks", words[k], TURNS * size);
    release(&win);
}

/* Each rank attaches a block, tells only its neighbour, and detaches the block of the previous
 * turn, which the neighbour no longer uses; other ranks may be in any phase. */
static void dynamic(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    unsigned char *blocks[2] = { NULL, NULL }, *from = malloc(LONGEST), *got = malloc(LONGEST);
    MPI_Win win;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    for (int i = 0; i < rounds; i++) {
        long mine[2], theirs[2];
        size_t len = edges[draw(&alone, EDGES)] + 8 * draw(&alone, 2), first = 0;
        unsigned char *block = blocks[i % 2] = calloc(len, 1);
        MPI_Aint here;
        MPI_Win_attach(win, block, len);
        MPI_Get_address(block, &here);
        mine[0] = here, mine[1] = len;
        MPI_Sendrecv(mine, 2, MPI_LONG, left, 0, theirs, 2, MPI_LONG, right, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        size_t at = 8 * draw(&alone, theirs[1] / 8), part = theirs[1] - at;
        pattern_fill(from, part, pattern_key(rank, right, i, seed));
        MPI_Put(from, part, MPI_BYTE, right, MPI_Aint_add(theirs[0], at), part, MPI_BYTE, win);
        if (i % 3 == 0) {
            MPI_Win_flush_local(right, win);
            memset(from, 0xff, part);
        }
        MPI_Win_flush(right, win);
        MPI_Get(got, theirs[1], MPI_BYTE, right, theirs[0], theirs[1], MPI_BYTE, win);
        MPI_Win_flush(right, win);
        for (size_t k = 0; k < at; k++)
            expect("a byte that nobody put", got[k], 0);
        size_t wrong = pattern_check(got + at, part, pattern_key(rank, right, i, seed), &first);
        expect("wrong bytes put and got", wrong, 0);
        mine[0] = at;
        MPI_Sendrecv(mine, 1, MPI_LONG, right, 1, theirs, 1, MPI_LONG, left, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Win_sync(win);
        wrong = pattern_check(block + theirs[0], len - theirs[0], pattern_key(left, rank, i, seed),
                              &first);
        expect("wrong bytes in an attached block", wrong, 0);
        operations += 2;
        unsigned char *before = blocks[(i + 1) % 2];
        if (before)
            MPI_Win_detach(win, before);
        free(before);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(win);
    if (rounds > 0)
        MPI_Win_detach(win, blocks[(rounds - 1) % 2]);
    MPI_Win_free(&win);
    free(blocks[(rounds + 1) % 2]);
    free(from);
    free(got);
}

/* Ranks of a host read each other's part directly, and put and add to it. */
static void shared(void)
{
    enum { WORDS = 3000 };
    MPI_Comm host;
    MPI_Win win;
    int here, all, unit;
    int64_t *mine, *theirs, one[WORDS];
    MPI_Aint bytes;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &here);
    MPI_Comm_size(host, &all);
    MPI_Win_allocate_shared(WORDS * sizeof *mine, sizeof *mine, MPI_INFO_NULL, host, &mine, &win);
    MPI_Win_lock_all(0, win);
    for (int k = 0; k < WORDS; k++)
        mine[k] = 0, one[k] = k;
    MPI_Win_sync(win);
    MPI_Barrier(host);
    for (int target = 0; target < all; target++)
        MPI_Accumulate(one, WORDS, MPI_INT64_T, target, 0, WORDS, MPI_INT64_T, MPI_SUM, win);
    MPI_Win_flush_all(win);
    MPI_Barrier(host);
    MPI_Win_sync(win);
    MPI_Win_shared_query(win, (here + 1) % all, &bytes, &unit, &theirs);
    for (int k = 0; k < WORDS; k++)
        expect("a shared sum", theirs[k], all * (int64_t)k);
    MPI_Barrier(host);
    int64_t value = 77 + here;
    MPI_Put(&value, 1, MPI_INT64_T, (here + 1) % all, WORDS - 1, 1, MPI_INT64_T, win);
    MPI_Win_flush_all(win);
    MPI_Win_sync(win);
    MPI_Barrier(host);
    MPI_Win_sync(win);
    expect("a word put into shared memory", mine[WORDS - 1], 77 + (here + all - 1) % all);
    operations += all + 1;
    MPI_Barrier(host);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MPI_Comm_free(&host);
}

/* The offset of element k in blocks with a stride. */
static int place(int k, int block, int stride)
{
    return k / block * stride + k % block;
}

static MPI_Datatype scattered_type(int count, int block, int stride)
{
    MPI_Datatype type;
    MPI_Type_vector(count / block, block, stride, MPI_INT64_T, &type);
    MPI_Type_commit(&type);
    return type;
}

/* Puts, gets and sums with different gaps on both sides. The gaps must stay unchanged. */
static void scattered(void)
{
    enum { COUNT = 1800, ROOM = 4 * COUNT };
    static const int blocks[] = { 1, 2, 3, 5, 60, 900 };
    int64_t *memory, *from = malloc(ROOM * 8), *got = malloc(ROOM * 8);
    int target = (rank + 1) % size, source = (rank + size - 1) % size;
    MPI_Win win = allocate(ROOM * sizeof *memory, sizeof *memory, &memory);
    for (int i = 0; i < (rounds + 3) / 4; i++) {
        int block[2], stride[2];
        for (int side = 0; side < 2; side++) {
            block[side] = blocks[draw(&together, 6)];
            stride[side] = block[side] + 1 + draw(&together, 2 * block[side]);
        }
        MPI_Datatype here = scattered_type(COUNT, block[0], stride[0]);
        MPI_Datatype there = scattered_type(COUNT, block[1], stride[1]);
        for (int k = 0; k < ROOM; k++)
            from[k] = got[k] = -1;
        for (int k = 0; k < COUNT; k++)
            from[place(k, block[0], stride[0])] = (rank + 1) * 100000 + k;
        MPI_Put(from, 1, here, target, 0, 1, there, win);
        MPI_Win_flush(target, win);
        MPI_Accumulate(from, 1, here, target, 0, 1, there, MPI_SUM, win);
        MPI_Win_flush(target, win);
        MPI_Get(got, 1, here, target, 0, 1, there, win);
        MPI_Win_flush(target, win);
        for (int k = 0, next = 0; k < ROOM; k++) {
            int is = next < COUNT && k == place(next, block[0], stride[0]);
            expect("a word got", got[k], is ? 2 * ((rank + 1) * 100000 + next) : -1);
            next += is;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(win);
        for (int k = 0, next = 0; k < ROOM; k++) {
            int is = next < COUNT && k == place(next, block[1], stride[1]);
            expect("a word of a window", memory[k], is ? 2 * ((source + 1) * 100000 + next) : 0);
            memory[k] = 0;
            next += is;
        }
        MPI_Win_sync(win);
        MPI_Barrier(MPI_COMM_WORLD);
        operations += 3;
        MPI_Type_free(&here);
        MPI_Type_free(&there);
    }
    release(&win);
    free(from);
    free(got);
}

/* Windows without memory, operations on zero elements or on MPI_PROC_NULL. */
static void nothing(void)
{
    int64_t *memory, value = 5, old = 6;
    MPI_Win win;
    MPI_Request requests[3];
    MPI_Win_allocate(rank % 2 ? 0 : 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    if (rank % 2 == 0)
        *memory = 9;
    MPI_Win_lock_all(0, win);
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int target = 0; target < size; target++) {
        MPI_Put(&value, 0, MPI_INT64_T, target, 0, 0, MPI_INT64_T, win);
        MPI_Get(&value, 0, MPI_INT64_T, target, 0, 0, MPI_INT64_T, win);
        MPI_Accumulate(&value, 0, MPI_INT64_T, target, 0, 0, MPI_INT64_T, MPI_SUM, win);
        MPI_Get_accumulate(&value, 0, MPI_INT64_T, &old, 0, MPI_INT64_T, target, 0, 0, MPI_INT64_T,
                           MPI_SUM, win);
        MPI_Rput(&value, 0, MPI_INT64_T, target, 0, 0, MPI_INT64_T, win, &requests[0]);
        MPI_Rget(&value, 0, MPI_INT64_T, target, 0, 0, MPI_INT64_T, win, &requests[1]);
        MPI_Raccumulate(&value, 0, MPI_INT64_T, target, 0, 0, MPI_INT64_T, MPI_SUM, win,
                        &requests[2]);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        MPI_Win_flush(target, win);
        operations += 7;
    }
    MPI_Put(&value, 1, MPI_INT64_T, MPI_PROC_NULL, 0, 1, MPI_INT64_T, win);
    MPI_Win_flush_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(win);
    expect("a word after operations of nothing", value * 10 + old, 56);
    if (rank % 2 == 0)
        expect("a window after operations of nothing", *memory, 9);
    release(&win);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = { { "accumulates", accumulates }, { "locks", locks },         { "dynamic", dynamic },
                  { "shared", shared },           { "scattered", scattered }, { "nothing", nothing } };
    const char *only = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--rounds"))
            rounds = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--seed"))
            seed = atoll(argv[i + 1]);
        else if (!strcmp(argv[i], "--only"))
            only = argv[i + 1];
    }
    alone = pattern_key(rank, 0, 0, seed);
    together = mix64(seed);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!only || !strcmp(only, parts[i].name))
            parts[i].run();
    MPI_Allreduce(MPI_IN_PLACE, &operations, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("windows ok operations=%ld\n", operations);
    MPI_Finalize();
    return 0;
}
