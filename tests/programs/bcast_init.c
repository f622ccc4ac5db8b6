/* Persistent broadcasts, started repeatedly with changed buffers, mixed with persistent and other
 * messages around the ring of all ranks. Each rank starts them in an order of its own.
 *
 *   bcast_init [--count N] [--until FILE] [--max-size BYTES] [--threads N] [--gentle]
 *
 * --until: continues on new communicators until rank 0 finds this file. --threads: threads per
 * rank, each with communicators of its own. --gentle: all ranks start requests in the same order,
 * keep datatypes, and avoid MPI_Testall, which the MPIs' own implementations get wrong.
 */
#include <mpi.h>
#include <getopt.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "pattern.h"

enum { SEVERAL = 5, TAG = 7, ROUNDS = 8, THREADS_MAX = 8 };
static int rank, ranks, gentle, count = 20;
static size_t max = 100000;
static const char *until;

/* The state of one thread. */
typedef struct Part {
    int number, first;
    MPI_Comm comms[2];
} Part;

/* Open MPI has MPI_Bcast_init in an extension before its MPI 4 support. */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_INIT 1
#endif

#ifdef HAS_INIT
static void wrong(int n, int b, size_t at)
{
    printf("bcast_init MISMATCH rank=%d n=%d request=%d offset=%zu\n", rank, n, b, at);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Completes the open requests, in one of four ways. */
static void finish(int how, int open, MPI_Request *requests)
{
    int over, index;
    switch (gentle && how % 4 == 2 ? 0 : how % 4) {
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
        while (open-- > 0)
            MPI_Wait(&requests[open], MPI_STATUS_IGNORE);
    }
}

/* Requests on two communicators: created, started ROUNDS times, freed; one is never started. */
static void several(int n, const Part *part)
{
    const MPI_Comm *comms = part->comms;
    int tag = TAG + part->number;
    unsigned char *all[SEVERAL], out[700], in[700];
    int roots[SEVERAL], wide[SEVERAL];
    MPI_Datatype types[SEVERAL];
    size_t bytes[SEVERAL], first = 0;
    MPI_Request requests[SEVERAL + 3], idle;
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int b = 0; b < SEVERAL; b++) {
        uint64_t draw = mix64((uint64_t)n * 89 + (uint64_t)b);
        roots[b] = (int)((draw >> 8) % (uint64_t)ranks);
        size_t limit = (draw >> 32) % 3 ? 3000 : max;
        bytes[b] = 1 + (draw >> 40) % limit;
        wide[b] = (draw >> 16) % 3 == 0 && rank % 2;
        all[b] = malloc(bytes[b] * 2 + 1);
        MPI_Comm comm = comms[draw % 2];
        if (wide[b]) { /* every second byte, with a datatype that is freed at once */
            MPI_Type_vector((int)bytes[b], 1, 2, MPI_BYTE, &types[b]);
            MPI_Type_commit(&types[b]);
            MPI_Bcast_init(all[b], 1, types[b], roots[b], comm, MPI_INFO_NULL, &requests[b]);
            if (!gentle)
                MPI_Type_free(&types[b]);
#if MPI_VERSION >= 4
        } else if (b % 2) {
            MPI_Bcast_init_c(all[b], (MPI_Count)bytes[b], MPI_BYTE, roots[b], comm, MPI_INFO_NULL,
                             &requests[b]);
#endif
        } else {
            MPI_Bcast_init(all[b], (int)bytes[b], MPI_BYTE, roots[b], comm, MPI_INFO_NULL,
                           &requests[b]);
        }
    }
    MPI_Bcast_init(all[0], (int)bytes[0], MPI_BYTE, 0, comms[0], MPI_INFO_NULL, &idle);
    MPI_Recv_init(in, sizeof in, MPI_BYTE, left, tag, MPI_COMM_WORLD, &requests[SEVERAL]);
    MPI_Send_init(out, sizeof out, MPI_BYTE, right, tag, MPI_COMM_WORLD, &requests[SEVERAL + 1]);
    for (int round = 0; round < ROUNDS; round++) {
        pattern_fill(out, sizeof out, pattern_key(rank, right, (uint64_t)n, round));
        for (int b = 0; b < SEVERAL; b++) {
            size_t step = wide[b] ? 2 : 1;
            memset(all[b], 0, bytes[b] * step);
            if (rank == roots[b])
                pattern_fill(all[b], bytes[b], pattern_key(b, 9, (uint64_t)n, round));
            for (size_t i = bytes[b]; wide[b] && rank == roots[b] && i-- > 0;)
                all[b][2 * i] = all[b][i];
        }
        if (round % 2) {
            MPI_Startall(SEVERAL + 2, requests);
        } else {
            for (int b = 0; b < SEVERAL + 2; b++)
                MPI_Start(&requests[(b + (gentle ? 0 : rank)) % (SEVERAL + 2)]);
        }
        MPI_Ibarrier(comms[1], &requests[SEVERAL + 2]);
        finish(n + round, SEVERAL + 3, requests);
        if (pattern_check(in, sizeof in, pattern_key(left, rank, (uint64_t)n, round), &first))
            wrong(n, -1, first);
        for (int b = 0; b < SEVERAL; b++) {
            for (size_t i = 0; wide[b] && i < bytes[b]; i++)
                all[b][i] = all[b][2 * i];
            if (pattern_check(all[b], bytes[b], pattern_key(b, 9, (uint64_t)n, round), &first))
                wrong(n, b, first);
        }
    }
    for (int b = 0; b < SEVERAL + 2; b++)
        MPI_Request_free(&requests[b]);
    MPI_Request_free(&idle);
    for (int b = 0; b < SEVERAL; b++)
        free(all[b]);
    for (int b = 0; b < SEVERAL && gentle; b++)
        if (wide[b])
            MPI_Type_free(&types[b]);
}
#endif

static void *play(void *given)
{
    const Part *part = given;
#ifdef HAS_INIT
    for (int n = 0; n < count; n++)
        several(part->first + n, part);
#else
    (void)part;
#endif
    return NULL;
}

/* Rank 0 decides whether all continue. */
static int is_awaited(void)
{
    int waits = until && access(until, F_OK);
    if (until)
        MPI_Bcast(&waits, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return waits;
}

int main(int argc, char **argv)
{
    int threads = 0, given;
    static struct option options[] = {
        {"count", 1, 0, 'c'}, {"max-size", 1, 0, 'm'}, {"threads", 1, 0, 't'},
        {"until", 1, 0, 'u'}, {"gentle", 0, 0, 'o'}, {0, 0, 0, 0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'c') count = atoi(optarg);
        else if (o == 'm') max = strtoull(optarg, NULL, 0);
        else if (o == 't') threads = atoi(optarg);
        else if (o == 'o') gentle = 1;
        else if (o == 'u') until = optarg;
        else return 2;
    }
    if (threads < 0 || threads > THREADS_MAX)
        return 2;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
    threads = threads ? threads : 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    Part parts[THREADS_MAX];
    pthread_t running[THREADS_MAX];
    double start = MPI_Wtime();
    for (int round = 0; round < 2 || is_awaited(); round++) {
        for (int t = 0; t < threads; t++) {
            parts[t] = (Part){.number = t, .first = (round * threads + t) * count};
            MPI_Comm_dup(MPI_COMM_WORLD, &parts[t].comms[0]);
            MPI_Comm_dup(MPI_COMM_WORLD, &parts[t].comms[1]);
        }
        for (int t = 1; t < threads; t++)
            pthread_create(&running[t], NULL, play, &parts[t]);
        play(&parts[0]);
        for (int t = 1; t < threads; t++)
            pthread_join(running[t], NULL);
        for (int t = 0; t < threads; t++) {
            MPI_Comm_free(&parts[t].comms[0]);
            MPI_Comm_free(&parts[t].comms[1]);
        }
    }
    if (rank == 0)
        printf("bcast ok n=%d ranks=%d seconds=%.2f\n", count, ranks, MPI_Wtime() - start);
    MPI_Finalize();
    return 0;
}
