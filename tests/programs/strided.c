/* Remote writes of 4 bytes each, and shared-memory windows, as in MPIs' own one-sided tests
 *
 *   strided [--elements N] [--way W | --shared | --threads T]
 *
 * Each rank writes into every other element of the next rank's window: N elements with one put whose
 * target is a vector, N puts of one element with one flush, and N accumulates of one element with one
 * flush. The mean time of an element is printed for each. --way: one of these alone, 0 to 2. --shared:
 * the window is one that ranks share (MPI_Win_allocate_shared, among the ranks that can); rows are put
 * and got with a type of indices, under a lock each. --threads: T threads of rank 0 put one element each
 * into a window of their own at rank 1 and flush it, N times in turn, while rank 1 waits in a barrier; the
 * mean time of a put with its flush is printed. Every element is checked. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 16 };
static int rank, ranks, elements = 1000, only = -1, shared, threads;
static MPI_Win wins[THREADS_MAX];

static void check(const char *what, int at, int got, int wanted)
{
    if (got == wanted)
        return;
    printf("strided MISMATCH: rank %d, %s: element %d is %d, not %d\n", rank, what, at, got, wanted);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int value(int from, int at, int round)
{
    return from * 1000003 + at * 31 + round;
}

/* Writes in one of three ways. */
static void write_all(int way, int to, const int *from, MPI_Datatype vector, MPI_Win win)
{
    if (way == 0) {
        MPI_Put(from, elements, MPI_INT, to, 0, 1, vector, win);
        return;
    }
    for (int i = 0; i < elements; i++) {
        if (way == 1)
            MPI_Put(from + i, 1, MPI_INT, to, 2 * i, 1, MPI_INT, win);
        else
            MPI_Accumulate(from + i, 1, MPI_INT, to, 2 * i, 1, MPI_INT, MPI_SUM, win);
    }
}

static void strides(void)
{
    static const char *const ways[] = {"one put", "puts", "accumulates"};
    int to = (rank + 1) % ranks, by = (rank + ranks - 1) % ranks;
    int *memory, *from = malloc(elements * sizeof *from);
    MPI_Win win;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "accumulate_ops", "same_op");
    MPI_Info_set(info, "disable_shm_accumulate", "true");
    MPI_Win_allocate(2 * elements * sizeof *memory, sizeof *memory, info, MPI_COMM_WORLD, &memory, &win);
    MPI_Info_free(&info);
    MPI_Datatype vector;
    MPI_Type_vector(elements, 1, 2, MPI_INT, &vector);
    MPI_Type_commit(&vector);
    for (int way = 0; way < 3; way++) {
        if (only >= 0 && way != only)
            continue;
        for (int i = 0; i < elements; i++)
            from[i] = value(rank, i, way);
        MPI_Win_lock_all(0, win);
        memset(memory, 0, 2 * elements * sizeof *memory);
        MPI_Win_sync(win);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        write_all(way, to, from, vector, win);
        MPI_Win_flush(to, win);
        MPI_Barrier(MPI_COMM_WORLD);
        double took = MPI_Wtime() - start;
        if (rank == 0)
            printf("strided way=%d element_us=%.3f\n", way, took / elements * 1e6);
        MPI_Win_sync(win);
        for (int i = 0; i < 2 * elements; i++)
            check(ways[way], i, memory[i], i % 2 ? 0 : value(by, i / 2, way));
        MPI_Win_unlock_all(win);
    }
    MPI_Type_free(&vector);
    MPI_Win_free(&win);
    free(from);
}

enum { ROWS = 64, WIDTH = 32, PART = 8 };

static void shared_rows(void)
{
    MPI_Comm near;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &near);
    int here, there;
    MPI_Comm_rank(near, &here);
    MPI_Comm_size(near, &there);
    int *memory, sent[ROWS * PART], got[ROWS * PART], lengths[ROWS], at[ROWS];
    MPI_Win win;
    MPI_Win_allocate_shared(ROWS * WIDTH * sizeof *memory, 1, MPI_INFO_NULL, near, &memory, &win);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, here, 0, win);
    memset(memory, 0, ROWS * WIDTH * sizeof *memory);
    MPI_Win_unlock(here, win);
    MPI_Barrier(near);
    for (int row = 0; row < ROWS; row++) {
        lengths[row] = PART;
        at[row] = row * WIDTH;
    }
    MPI_Datatype rows;
    MPI_Type_indexed(ROWS, lengths, at, MPI_INT, &rows);
    MPI_Type_commit(&rows);
    int to = (here + 1) % there, by = (here + there - 1) % there;
    for (int i = 0; i < ROWS * PART; i++)
        sent[i] = value(here, i, 0);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win);
    MPI_Put(sent, ROWS * PART, MPI_INT, to, 0, 1, rows, win);
    MPI_Win_unlock(to, win);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win);
    memset(got, 0, sizeof got);
    MPI_Get(got, ROWS * PART, MPI_INT, to, 0, 1, rows, win);
    MPI_Win_unlock(to, win);
    for (int i = 0; i < ROWS * PART; i++)
        check("what is got", i, got[i], sent[i]);
    MPI_Barrier(near);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, here, 0, win);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        int wanted = i % WIDTH < PART ? value(by, i / WIDTH * PART + i % WIDTH, 0) : 0;
        check("what was put", i, memory[i], wanted);
    }
    MPI_Win_unlock(here, win);
    MPI_Type_free(&rows);
    MPI_Win_free(&win);
    MPI_Comm_free(&near);
}

static void *puts_and_flushes(void *which)
{
    int thread = (int)(long)which;
    for (int i = 0; i < elements; i++) {
        int number = value(thread, i, 0);
        MPI_Put(&number, 1, MPI_INT, 1, i, 1, MPI_INT, wins[thread]);
        MPI_Win_flush(1, wins[thread]);
    }
    return NULL;
}

static void in_threads(void)
{
    int *memory[THREADS_MAX];
    pthread_t running[THREADS_MAX];
    for (int t = 0; t < threads; t++) {
        MPI_Win_allocate(elements * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory[t], &wins[t]);
        MPI_Win_lock_all(0, wins[t]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int t = 0; t < threads && rank == 0; t++)
        pthread_create(&running[t], NULL, puts_and_flushes, (void *)(long)t);
    for (int t = 0; t < threads && rank == 0; t++)
        pthread_join(running[t], NULL);
    double took = MPI_Wtime() - start;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int t = 0; t < threads; t++) {
        MPI_Win_unlock_all(wins[t]);
        for (int i = 0; i < elements && rank == 1; i++)
            check("what a thread put", i, memory[t][i], value(t, i, 0));
        MPI_Win_free(&wins[t]);
    }
    if (rank == 0)
        printf("strided flush_us=%.1f\n", took / elements / threads * 1e6);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--shared"))
            shared = 1;
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--elements") && i + 1 < argc)
            elements = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--way") && i + 1 < argc)
            only = atoi(argv[++i]);
        else
            return fprintf(stderr, "usage: strided [--elements N] [--way W | --shared | --threads T]\n"), 2;
    }
    int provided;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || elements < 1 || threads < 0 || threads > THREADS_MAX)
        return fprintf(stderr, "strided: two ranks or more, one element or more, at most 16 threads\n"), 2;
    if (threads)
        in_threads();
    else if (shared)
        shared_rows();
    else
        strides();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("strided ok elements=%d\n", elements);
    MPI_Finalize();
    return 0;
}
