/* A job that replaces a lost rank (ULFM, as in Open MPI) and continues from checkpoints in memory: each
 * rank sends its state to the next rank, its buddy, every few rounds. Rank 1 is killed by SIGKILL; a rank
 * with an error revokes the communicator, the remaining ranks shrink it and spawn another process, which
 * gets the lost rank's number, and its state from the buddy. All repeat the rounds since the checkpoint.
 *
 *   buddy [ROUND [ROUNDS]]     rank 1 dies before this round (25) of so many (60)
 *
 * Each rank compares its last state with that of a run without loss. Rank 0 prints
 * `buddy: lost 1 of N, began again at round R` and `buddy ok ranks=N rounds=ROUNDS`.
 */
#include <mpi.h>

#include <mpi-ext.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "pattern.h"

enum { WORDS = 20000 /* 160 kB, sent by rendezvous */, INTERVAL = 10, RANK_TAG = 1, STATE_TAG, COPY_TAG, BACK_TAG };

/* A checkpoint of a rank and of the rank before it. */
struct checkpoint {
    long round;
    uint64_t own[WORDS], before[WORDS];
};

static uint64_t state[WORDS], received[WORDS];
/* A loss during a checkpoint leaves the one before it. */
static struct checkpoint kept[2] = {{.round = -1}, {.round = -1}};
static int rank, ranks;

static void need(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "buddy: rank %d: no success of %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void begin(uint64_t *of, int number)
{
    for (int i = 0; i < WORDS; i++)
        of[i] = mix64(number * 1000003ull + i);
}

static void advance(uint64_t *of, const uint64_t *before, long round)
{
    for (int i = 0; i < WORDS; i++)
        of[i] = 5 * of[i] + 3 * before[i] + round;
}

static int neighbours(MPI_Comm comm, const uint64_t *to_next, uint64_t *from_before, int tag)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    return MPI_Sendrecv(to_next, WORDS, MPI_UINT64_T, next, tag, from_before, WORDS, MPI_UINT64_T, before, tag,
                        comm, MPI_STATUS_IGNORE);
}

static int checkpoint(MPI_Comm comm, long round)
{
    struct checkpoint *to = &kept[round / INTERVAL % 2];
    int err, all = 1;
    to->round = -1;
    memcpy(to->own, state, sizeof state);
    if ((err = neighbours(comm, state, to->before, COPY_TAG)) == MPI_SUCCESS)
        err = MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm);
    if (err == MPI_SUCCESS)
        to->round = round;
    return err;
}

/* The rounds from `*round` on; `dies_before`: the round before which this rank is killed. */
static int work(MPI_Comm comm, long *round, long rounds, long dies_before)
{
    int err = MPI_SUCCESS;
    for (; *round < rounds; (*round)++) {
        if (*round == dies_before)
            raise(SIGKILL);
        if (*round % INTERVAL == 0 && (err = checkpoint(comm, *round)) != MPI_SUCCESS)
            return err;
        if ((err = neighbours(comm, state, received, STATE_TAG)) != MPI_SUCCESS)
            return err;
        advance(state, received, *round);
    }
    return MPI_Barrier(comm);
}

/* Tells the spawned process which rank is lost. */
static void name_lost(MPI_Comm comm, MPI_Comm left, MPI_Comm spawned)
{
    MPI_Group all, there, gone;
    int first = 0, lost;
    MPI_Comm_group(comm, &all);
    MPI_Comm_group(left, &there);
    MPI_Group_difference(all, there, &gone);
    MPI_Group_translate_ranks(gone, 1, &first, all, &lost);
    need(MPI_Send(&lost, 1, MPI_INT, 0, RANK_TAG, spawned) == MPI_SUCCESS, "MPI_Send to the spawned process");
    MPI_Group_free(&all);
    MPI_Group_free(&there);
    MPI_Group_free(&gone);
}

/* A communicator of all ranks, with a spawned process in the place of the lost one. `comm`: the revoked one,
 * or MPI_COMM_NULL in the spawned process. */
static MPI_Comm replace(MPI_Comm comm, char **argv)
{
    MPI_Comm left = MPI_COMM_WORLD, both, merged, whole;
    int spawned = comm == MPI_COMM_NULL, good = 1, number, now;
    if (spawned) {
        MPI_Comm_get_parent(&both);
        need(MPI_Recv(&rank, 1, MPI_INT, 0, RANK_TAG, both, MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_Recv");
    } else {
        need(MPIX_Comm_shrink(comm, &left) == MPI_SUCCESS, "MPIX_Comm_shrink");
        MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
        MPI_Comm_size(left, &now);
        need(now == ranks - 1, "losing one rank alone");
        good = MPI_Comm_spawn(argv[0], argv + 1, 1, MPI_INFO_NULL, 0, left, &both, MPI_ERRCODES_IGNORE) == MPI_SUCCESS;
        need(MPIX_Comm_agree(left, &good) == MPI_SUCCESS && good, "MPI_Comm_spawn");
        MPI_Comm_rank(left, &number);
        if (number == 0)
            name_lost(comm, left, both);
    }
    need(MPI_Intercomm_merge(both, spawned, &merged) == MPI_SUCCESS, "MPI_Intercomm_merge");
    need(MPI_Comm_split(merged, 0, rank, &whole) == MPI_SUCCESS, "MPI_Comm_split");
    MPI_Comm_set_errhandler(whole, MPI_ERRORS_RETURN);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&both);
    MPI_Comm_rank(whole, &number);
    need(number == rank, "keeping the ranks' numbers");
    MPI_Comm_size(whole, &ranks);
    return whole;
}

/* Gets all states back from the last checkpoint that every rank has left; returns its round. */
static long restore(MPI_Comm comm, int spawned)
{
    long latest = kept[0].round > kept[1].round ? kept[0].round : kept[1].round;
    long mine[2] = {spawned ? 1L << 30 : latest, spawned ? rank : -1}, all[2];
    need(MPI_Allreduce(&mine[0], &all[0], 1, MPI_LONG, MPI_MIN, comm) == MPI_SUCCESS, "MPI_Allreduce");
    need(MPI_Allreduce(&mine[1], &all[1], 1, MPI_LONG, MPI_MAX, comm) == MPI_SUCCESS, "MPI_Allreduce");
    const struct checkpoint *from = &kept[all[0] / INTERVAL % 2];
    int lost = all[1], buddy = (lost + 1) % ranks, err = MPI_SUCCESS;
    if (!spawned) {
        need(from->round == all[0], "finding the checkpoint");
        memcpy(state, from->own, sizeof state);
    }
    if (rank == buddy)
        err = MPI_Send(from->before, WORDS, MPI_UINT64_T, lost, BACK_TAG, comm);
    else if (rank == lost)
        err = MPI_Recv(state, WORDS, MPI_UINT64_T, buddy, BACK_TAG, comm, MPI_STATUS_IGNORE);
    need(err == MPI_SUCCESS, "restoring from the buddy");
    return all[0];
}

/* Compares the state with that of a run without loss. */
static void check(long rounds)
{
    uint64_t *all = malloc(ranks * sizeof state), *last = malloc(ranks * sizeof state);
    for (int r = 0; r < ranks; r++)
        begin(all + (size_t)r * WORDS, r);
    for (long round = 0; round < rounds; round++) {
        memcpy(last, all, ranks * sizeof state);
        for (int r = 0; r < ranks; r++)
            advance(all + (size_t)r * WORDS, last + (size_t)((r + ranks - 1) % ranks) * WORDS, round);
    }
    need(memcmp(all + (size_t)rank * WORDS, state, sizeof state) == 0, "computing the state");
    free(all);
    free(last);
}

int main(int argc, char **argv)
{
    long dies_before = argc > 1 ? atol(argv[1]) : 25, rounds = argc > 2 ? atol(argv[2]) : 60, round = 0;
    MPI_Comm parent, comm = MPI_COMM_NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    int spawned = parent != MPI_COMM_NULL;
    if (!spawned) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        begin(state, rank);
        need(work(comm, &round, rounds, rank == 1 ? dies_before : -1) != MPI_SUCCESS, "noticing the loss");
        MPIX_Comm_revoke(comm);
    }
    MPI_Comm whole = replace(comm, argv);
    round = restore(whole, spawned);
    if (rank == 0)
        printf("buddy: lost 1 of %d, began again at round %ld\n", ranks, round);
    need(work(whole, &round, rounds, -1) == MPI_SUCCESS, "a round with the spawned process");
    check(rounds);
    MPI_Barrier(whole);
    if (rank == 0)
        printf("buddy ok ranks=%d rounds=%ld\n", ranks, rounds);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
